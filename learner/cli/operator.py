"""The operator's client: finds a running learner and asks it over HTTP. Imports neither torch nor gRPC."""

from __future__ import annotations

import contextlib
import hmac
import os
import platform
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

from rollcast.addresses import reached_here, split_address
from rollcast.auth import MAX_FILE_BYTES, proof_of, token_hash
from rollcast.other_services import GRPC
from rollcast.text import MAX_ERROR_CHARS, printable
from rollcast.tls import ClientSecurity, IdentityError, parsed_token
from rollcast.tls import read_token as read_secret

from learner.cli.exchange import CALL_SECONDS, Exchange, NotALearnerError, Refused
from learner.service.web.operator_token import TOKEN_FILE, read_token
from learner.shared.exits import ExitCode, UserError
from learner.shared.files import open_regular
from learner.shared.observe.address import (
    ADDRESS_FILE,
    TRAINERS_FILE,
    BoundAddresses,
    page_url,
    read_addresses,
    read_awaited,
)
from learner.shared.observe.document import status_of
from learner.shared.observe.view import RunState, StatusView
from learner.shared.platform import own_user
from learner.shared.results import in_results, listing
from learner.shared.runfolder.lock import FolderLock
from learner.shared.settings.addresses import is_local
from learner.start.last_start import starting_again
from learner.start.list_runs import list_runs, run_places, state_of

SAVE_SECONDS = 130.0
"""More than a learner waits for a checkpoint."""
CHANGE_SECONDS: Final = 65.0
"""More than a learner waits for the current update."""
_NONCE_BYTES: Final = 32
_MAX_NAMES: Final = 8
_MAX_NAME_CHARS: Final = 80
_NOT_SAVED = frozenset({"CHECKPOINT_FAILED", "CHECKPOINT_LATE", "NOTHING_TO_SAVE"})
_WRONG_WORDS = frozenset({"BAD_CHANGE", "SETTING_REFUSED"})
_MISSING_TOKEN: Final = "the learner requires a token: give --token-file FILE"  # noqa: S105 - says that there is none


class WaitsForTrainersError(UserError):
    """Indicates that the learner is waiting for its trainers to connect.

    Args:
        folder: Its run folder.
        address: Where it listens for them; empty if it starts them itself.
    """

    def __init__(self, folder: Path, address: str) -> None:
        waits = f"waits for its trainers at {address}: start them with rollcast trainer"
        super().__init__(
            ExitCode.UNREACHABLE,
            f"the learner of {folder} runs and {waits if address else 'starts its trainers again: ask it when they are back'}",
        )


class Operator:
    """Asks a learner over HTTP; its methods raise UserError.

    The exit code is UNREACHABLE if the learner does not answer or cannot carry out the request, NOT_ALLOWED if it refuses
    the request, PROTOCOL_MISMATCH if the server is not a learner, NOT_SAVED if there is no checkpoint, USAGE if a file of
    the identity cannot be used or a setting cannot change.

    Args:
        address: Address of the learner's HTTP port.
        page: URL of the status page; empty if unknown.
        security: Certificates and token.
        found: Addresses from its run folder, which name its run, authority and token; None for a learner of any run.
    """

    def __init__(
        self,
        address: str,
        *,
        page: str = "",
        security: ClientSecurity | None = None,
        found: BoundAddresses | None = None,
    ) -> None:
        self.address = address
        self.page = page
        self._run_id = "" if found is None else found.run_id
        self._security = _security(found, security or ClientSecurity())
        try:
            file = self._security.token_file
            self._security.check()
            self._token = _token_of(found) if file is None else read_secret(file)
        except IdentityError as error:
            raise UserError(ExitCode.USAGE, str(error)) from None

    @classmethod
    def find(
        cls, control: str | None, run: str | None, results_dir: Path, given: ClientSecurity | None = None
    ) -> Operator:
        """Returns an operator for an address, for a run (its folder or name), or for the only running one.

        The authority and the token are those of the run folder, unless others are given.

        Raises:
            UserError: No address was given, and no running learner or more than one was found.
        """
        asked = given or ClientSecurity()
        if control is not None:
            try:
                split_address(control)
            except ValueError as error:
                raise UserError(ExitCode.USAGE, f"--control {error}, got {control!r}") from None
            return cls(control, security=asked, found=_at(control, results_dir))
        return cls.of(find_running(run, results_dir)[1], asked)

    @classmethod
    def of(cls, addresses: BoundAddresses, given: ClientSecurity | None = None) -> Operator:
        """Returns an operator for a running learner on this machine.

        Raises:
            UserError: A file of its identity cannot be read.
        """
        return cls(
            addresses.http and reached_here(addresses.http), page=addresses.page_url, security=given, found=addresses
        )

    def prove(self) -> None:
        """Checks that whoever answers knows the token, which no stranger may get who has the port of a killed learner.

        With TLS, the certificate has proved it.

        Raises:
            UserError: It does not (UNREACHABLE), or there is no such token (NOT_ALLOWED).
        """
        with self._exchange():
            pass

    def status(self) -> StatusView:
        """Returns the state of the run."""
        with self._exchange() as exchange:
            return self._status(exchange)

    def pause(self) -> None:
        """Pauses the run."""
        self.act("pause", seconds=CHANGE_SECONDS)

    def resume(self) -> None:
        """Ends a pause."""
        self.act("resume", seconds=CHANGE_SECONDS)

    def save_checkpoint(self) -> str:
        """Saves a checkpoint and returns its path on the learner's machine."""
        return str(self.act("checkpoint", seconds=SAVE_SECONDS).get("path", ""))

    def drain(self, *, final: bool) -> None:
        """Ends the run; with `final` the actors exit too."""
        self.act("drain", {"final": str(int(final))})

    def set(self, values: Mapping[str, str]) -> list[dict[str, Any]]:
        """Changes settings while the run trains, all or none.

        Args:
            values: New values as text, by name.

        Returns:
            The changes: ``name``, ``old``, ``new``, and all of it in words as ``text``.
        """
        return self._changes("set", values)

    def undo(self) -> list[dict[str, Any]]:
        """Undoes the last change of settings, and returns what has changed, as `set` does."""
        return self._changes("undo", {})

    def _changes(self, action: str, values: Mapping[str, str]) -> list[dict[str, Any]]:
        changes = self.act(action, values, seconds=CHANGE_SECONDS).get("changes")
        return [each for each in changes if isinstance(each, dict)] if isinstance(changes, list) else []

    def release(self, actor_name: str, principal: str | None) -> int:
        """Lets an actor that is shut out in again; returns the number of actors of this name."""
        whose = {} if principal is None else {"principal": principal}
        count = self.act("release", {"actor": actor_name, **whose}).get("count")
        return count if isinstance(count, int) else 0

    def accepts_actors(self) -> bool:
        """Returns whether the run waits or trains, and is not paused, draining or failed."""
        return self.status().run.state in {RunState.WAITING, RunState.TRAINING}

    def _status(self, exchange: Exchange) -> StatusView:
        document = exchange.ask("GET", "/api/status")
        try:
            found = status_of(document)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            raise UserError(
                ExitCode.PROTOCOL_MISMATCH,
                f"what answers at {self.address} sends another status than a learner of this release: give the address of a "
                "learner's status page as --control, or the name of the run",
            ) from None
        if self._run_id and found.run.run_id != self._run_id:  # it took the port of a learner that was killed
            raise UserError(
                ExitCode.UNREACHABLE,
                f"the learner at {self.address} has run {printable(found.run.run_id)}, not {printable(self._run_id)}, whose learner "
                "no longer runs there: start it again with the learner's --resume",
            )
        return found

    def act(self, action: str, query: Mapping[str, str] | None = None, seconds: float = CALL_SECONDS) -> dict[str, Any]:
        """Sends a request that changes the run, once whoever answers has proved to be its learner; returns the answer.

        Args:
            action: Name of the route below ``/api/``.
            query: Its arguments.
            seconds: Longest wait for the answer.
        """
        with self._exchange() as exchange:
            if self._run_id:
                self._status(exchange)
            return exchange.ask("POST", f"/api/{action}?{urlencode(query or {})}", seconds)

    @contextlib.contextmanager
    def _exchange(self) -> Iterator[Exchange]:
        """Opens a connection, whose other end has proved that it knows the token; explains why it fails."""
        if not self.address:
            raise UserError(ExitCode.UNREACHABLE, f"the learner {SERVES_NOTHING}")
        try:
            with Exchange(self.address, self._security) as exchange:
                if self._token is not None:
                    if self._security.ca is None:
                        self._prove(exchange, self._token)
                    exchange.authorize(self._token)
                yield exchange
        except IdentityError as error:
            raise UserError(ExitCode.USAGE, str(error)) from None
        except Refused as refused:
            code = _exit_code(refused)
            text = str(refused)
            if code is not ExitCode.USAGE:
                text = f"the request to the learner at {self.address} failed: {text}"
            if code is ExitCode.NOT_ALLOWED:
                why = _MISSING_TOKEN if refused.reason == "NO_TOKEN" else str(refused)
                text = f"the learner at {self.address} refused this command: {why}"
            raise UserError(code, text) from None
        except TimeoutError:
            raise UserError(ExitCode.UNREACHABLE, f"the learner at {self.address} did not answer in time") from None
        except (NotALearnerError, OSError) as error:
            raise self._no_learner(is_other=isinstance(error, NotALearnerError)) from None

    def _no_learner(self, *, is_other: bool) -> UserError:
        """Returns why no learner answers, as far as that can be told.

        Args:
            is_other: Whether something else answers.
        """
        place = split_address(self.address)
        problem = self._security.problem(*place)
        if problem:
            return UserError(ExitCode.UNREACHABLE, problem)
        other = self._security.other_service(*place, "page")
        if other and not other.startswith(GRPC):
            return UserError(ExitCode.UNREACHABLE, f"no status page of a learner answers at {self.address}: {other}")
        if other or is_other:
            return UserError(
                ExitCode.PROTOCOL_MISMATCH,
                f"{self.address} is no address of a learner's status page, but perhaps its address for actors: give the one of "
                "the page in its line learner_started as --control, or the name of the run",
            )
        return UserError(
            ExitCode.UNREACHABLE,
            self._security.proxy_words(self.address)
            or f"no learner answers at {self.address}; if it was killed, start it again with the learner's --resume",
        )

    def _prove(self, exchange: Exchange, token: str) -> None:
        port = split_address(self.address)[1]
        hashed, nonce = token_hash(token), secrets.token_bytes(_NONCE_BYTES)
        claim = proof_of("caller", hashed, nonce, port)
        found = exchange.ask("POST", f"/api/prove?{urlencode({'nonce': nonce.hex(), 'claim': claim.hex()})}").get(
            "proof"
        )
        expected = proof_of("learner", hashed, nonce, port).hex()
        if not isinstance(found, str) or not hmac.compare_digest(found.encode(), expected.encode()):
            raise UserError(
                ExitCode.UNREACHABLE,
                f"whoever answers at {self.address} is not the learner: it does not know the token, which was not sent; if that "
                "was killed, start it again with the learner's --resume",
            )


def _security(found: BoundAddresses | None, given: ClientSecurity) -> ClientSecurity:
    """Returns the given identity, completed by the authority of a run folder."""
    if found is not None and given.ca is None and found.tls and found.ca:
        return replace(given, ca=Path(found.ca))
    return given


def _token_of(found: BoundAddresses | None) -> str | None:
    """Returns the token of a run folder; None if it has none, or this user cannot read it.

    Whoever can write to a folder of runs could name a token of this user's there, and an address of their own. So the
    file of the addresses must be this user's, or the token must be of the same user as that file.

    Raises:
        UserError: It is of neither (NOT_ALLOWED).
    """
    if found is None or not found.token:
        return None
    try:
        stream = open_regular(Path(found.token))
    except OSError:
        return None
    with stream:
        if found.owner is not None and found.owner not in {os.fstat(stream.fileno()).st_uid, own_user()}:
            raise UserError(
                ExitCode.NOT_ALLOWED,
                f"the run folder, of another user, names the token {printable(found.token)}, which is not that user's and was "
                "not sent; if you trust the folder, give --token-file FILE",
            )
        return parsed_token(stream.read(MAX_FILE_BYTES), Path(found.token))


def _at(control: str, results_dir: Path) -> BoundAddresses | None:
    """Returns the addresses of the running learner that answers at an address; None if it is not in the folder."""
    found = (read_addresses(place) for place in _places(results_dir) if _runs(place) is not False)
    return next((each for each in found if each is not None and control in {each.http, reached_here(each.http)}), None)


def _places(results_dir: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from run_places(results_dir)


def _exit_code(refused: Refused) -> ExitCode:
    if refused.reason in _NOT_SAVED:
        return ExitCode.NOT_SAVED
    if refused.reason in _WRONG_WORDS:
        return ExitCode.USAGE
    return ExitCode.NOT_ALLOWED if 400 <= refused.status < 500 and refused.reason != "BUSY" else ExitCode.UNREACHABLE


def find_running(run: str | None, results_dir: Path) -> tuple[Path, BoundAddresses]:
    """Returns the folder and the addresses of a run, or of the only running one.

    Args:
        run: Run folder or name of a run; None takes the only running one.
        results_dir: Folder in which named runs are searched.

    Raises:
        WaitsForTrainersError: The run waits for its trainers.
        UserError: UNREACHABLE if the run is not running, or none is; USAGE if more than one is running.
    """
    if run is not None:
        places = (Path(run), results_dir / run)
        folder = next((place for place in places if _has_learner(place)), places[-1])
        if folder is places[-1] and not folder.is_dir():
            folder = next((place for place in places if place.is_dir()), folder)
        if not folder.is_dir():
            raise UserError(
                ExitCode.NOTHING_TO_RESUME,
                f"there is no run {run!r}: neither {places[0]} nor {places[1]} is a folder; {listing(results_dir)} lists the runs",
            )
    else:
        states = {place: _runs(place) for place in _places(results_dir)}
        found = sorted(place for place, runs in states.items() if runs)
        found = found or sorted(place for place, runs in states.items() if runs is None and _has_learner(place))
        if not found:
            raise UserError(
                ExitCode.UNREACHABLE,
                f"no running learner found in {results_dir}{_newest(results_dir)}: start one with rollcast serve "
                f"RUN.yaml{in_results(results_dir)}, or name a run elsewhere (its folder or its id), or give --control HOST:PORT",
            )
        if len(found) > 1:
            raise UserError(
                ExitCode.USAGE,
                f"{len(found)} running learners found in {results_dir}: {_names(found, results_dir)}; name one of them as the "
                "command's RUN, or give --control HOST:PORT",
            )
        folder = found[0]
    _require_running(folder)
    addresses = read_addresses(folder)
    if addresses is None:
        awaited = read_awaited(folder)
        if awaited is not None and awaited.address:
            _require_answer(page_url(awaited.address))
        if awaited is not None and (awaited.address or FolderLock.is_held(folder)):
            raise WaitsForTrainersError(folder, awaited.address)
        if (state := state_of(folder)) in {"starting", "ending"}:
            waits = (
                "does not listen yet: repeat the command in some seconds"
                if state == "starting"
                else "no longer listens"
            )
            raise UserError(ExitCode.UNREACHABLE, f"the learner of {folder} is {state} and {waits}")
        raise UserError(
            ExitCode.UNREACHABLE,
            f"{folder / ADDRESS_FILE} does not exist or is damaged: no learner runs in that folder; start one with "
            f"{starting_again(folder.name, folder.parent)}",
        )
    return folder, addresses


def _names(folders: Sequence[Path], results_dir: Path) -> str:
    """Returns the ids of runs, of many the first ones."""
    ids = [printable(folder.relative_to(results_dir).as_posix(), _MAX_NAME_CHARS) for folder in folders]
    more = f" and {len(ids) - _MAX_NAMES} more" if len(ids) > _MAX_NAMES else ""
    return ", ".join(ids[:_MAX_NAMES]) + more


def _has_learner(folder: Path) -> bool:
    with contextlib.suppress(PermissionError):
        return any((folder / name).is_file() for name in (ADDRESS_FILE, TRAINERS_FILE))
    return False


def _runs(folder: Path) -> bool | None:
    """Returns whether the learner that left its address in a folder runs; None if unknown, as for one of another machine.

    Its process id would not tell: another process may have it. The lock of the folder ends with the process.
    """
    runs, addresses = FolderLock.state(folder), read_addresses(folder)
    if not runs and FolderLock.is_of_another_folder(folder):  # its addresses are those of the run that was copied
        return False
    # Some network file systems do not pass locks on.
    return None if runs is False and _is_of_another_machine(addresses) else runs


def _require_running(folder: Path) -> None:
    """Checks that the learner that left its address in a folder may run.

    Raises:
        UserError: It was killed, the folder is a copy, or only its own machine reaches it.
    """
    if not _has_learner(folder) or (runs := _runs(folder)):
        return
    addresses = read_addresses(folder)
    if runs is False:
        why = (
            f"{folder} was copied or moved here, and no learner has had it in this place"
            if FolderLock.is_of_another_folder(folder)
            else f"the learner of {folder} was killed: no process has the folder, only its address is left"
        )
        raise UserError(
            ExitCode.UNREACHABLE, f"{why}. Continue the run there with {starting_again(folder.name, folder.parent)}"
        )
    served_here = addresses is None or not addresses.http or is_local(reached_here(addresses.http))
    if addresses is not None and _is_of_another_machine(addresses) and served_here:
        raise UserError(
            ExitCode.UNREACHABLE,
            f"the learner of {folder} was started on {printable(addresses.host)} and its status page is reached only there: "
            "run this command on that machine, or give --control HOST:PORT",
        )


def _is_of_another_machine(addresses: BoundAddresses | None) -> bool:
    return addresses is not None and addresses.host not in {"", platform.node()}


def _newest(results_dir: Path) -> str:
    """Returns the newest run of a folder and how it ended, in brackets; empty if there is none."""
    rows = list_runs(results_dir) if results_dir.is_dir() else []
    if not rows:
        return ""
    row = rows[0]
    state = f"{row.state}: {row.reason}" if row.reason else row.state
    again = f"; to continue it: {starting_again(row.run_id, results_dir)}" if row.state in {"killed", "copy"} else ""
    return printable(f" (the newest run, {row.run_id}, is {state}{again})", MAX_ERROR_CHARS)


CONNECT_SECONDS: Final = 2.0
SERVES_NOTHING: Final = "serves no page; start it with rollcast.http: true"


def page_link(run: str | None, results_dir: Path) -> str:
    """Returns the URL of the page with the operator's token after ``#``, which browsers send to no server.

    If the token comes from a user's file, the URL omits it and the page asks for it.

    Args:
        run: Run folder or name; None takes the only running one.
        results_dir: Folder of all runs.

    Raises:
        UserError: No learner runs there, it does not answer, it serves no page, or this user cannot read its token.
    """
    folder, addresses = find_running(run, results_dir)
    if not addresses.http:
        raise UserError(ExitCode.UNREACHABLE, f"the learner of {folder} {SERVES_NOTHING}")
    _require_answer(page_url(addresses.http))
    url = addresses.page_url
    token = read_token(folder)
    if token is not None:
        Operator.of(replace(addresses, token=str(folder / TOKEN_FILE))).prove()
        return f"{url}#token={quote(token.reveal(), safe='')}"
    if (folder / TOKEN_FILE).exists():
        raise UserError(
            ExitCode.NOT_ALLOWED,
            f"{folder / TOKEN_FILE} is readable only by the user who runs the learner; the page without buttons is at {url}",
        )
    return url


def _require_answer(url: str) -> None:
    try:
        parts = urlsplit(url)
        socket.create_connection((parts.hostname or "", parts.port or 0), CONNECT_SECONDS).close()
    except (OSError, ValueError):  # a host in brackets that is no address
        raise UserError(
            ExitCode.UNREACHABLE,
            f"no learner answers at {url}; if it was killed, start it again with the learner's --resume",
        ) from None
