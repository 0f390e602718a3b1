"""The operator's client: finds a running learner and calls its ControlService. Imports no torch."""

from __future__ import annotations

import contextlib
import hmac
import os
import platform
import secrets
import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import quote, urlsplit

import grpc
from rollcast.addresses import split_address
from rollcast.auth import MAX_FILE_BYTES, authorization, proof_of, token_hash
from rollcast.channels import channel_options
from rollcast.errors import Draining, WireError, from_rpc_error
from rollcast.limits import MAX_CHUNK_BYTES
from rollcast.text import MAX_ERROR_CHARS, printable
from rollcast.tls import ClientSecurity, IdentityError, parsed_token
from rollcast.tls import read_token as read_secret
from rollcast.v1 import control_pb2, control_pb2_grpc

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
from learner.shared.platform import own_user
from learner.shared.results import in_results, listing
from learner.shared.runfolder.lock import FolderLock
from learner.shared.settings.addresses import is_local
from learner.start.last_start import starting_again
from learner.start.list_runs import list_runs, run_places, state_of

CALL_SECONDS = 5.0
SAVE_SECONDS = 120.0
_NONCE_BYTES: Final = 32
_MAX_NAMES: Final = 8
_MAX_NAME_CHARS: Final = 80
_REFUSED: Final = frozenset(
    {
        *(grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.NOT_FOUND),
        *(grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION),
    }
)
"""Codes of answers that the same command would get again."""
_NOT_SAVED = frozenset({"CHECKPOINT_FAILED", "CHECKPOINT_LATE", "NOTHING_TO_SAVE"})


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
    """Calls the ControlService at one address; use it in a `with` block.

    Every method raises UserError: UNREACHABLE if the learner does not answer or cannot carry out the call,
    NOT_ALLOWED if it refuses the call, PROTOCOL_MISMATCH if the server is not a learner, NOT_SAVED if there is no
    checkpoint, USAGE if a file of the identity cannot be used.

    Args:
        address: Control address.
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
            self._channel = self._security.sync_channel(address, channel_options(MAX_CHUNK_BYTES))
        except IdentityError as error:
            raise UserError(ExitCode.USAGE, str(error)) from None
        self._stub = control_pb2_grpc.ControlServiceStub(self._channel)

    @classmethod
    def find(
        cls, control: str | None, run: str | None, results_dir: Path, given: ClientSecurity | None = None
    ) -> Operator:
        """Returns an operator for a control address, for a run (its folder or name), or for the only running one.

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
        return cls(addresses.control, page=addresses.page_url, security=given, found=addresses)

    def __enter__(self) -> Self:
        """Returns the operator."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the channel; turns a failed call into a UserError."""
        self._channel.close()
        if isinstance(error, grpc.RpcError):
            cause = from_rpc_error(error)
            text = f"the request to the learner at {self.address} failed: {cause}"
            if _exit_code(cause) is ExitCode.NOT_ALLOWED:
                text = f"the learner at {self.address} refused this command: {cause}"
            if cause.code is grpc.StatusCode.UNAVAILABLE and not cause.reason:  # from gRPC itself, not from a learner
                text = f"no learner answers at {self.address}; if it was killed, start it again with the learner's --resume"
                text = self._security.proxy_words(self.address) or text
                with contextlib.suppress(ValueError):
                    text = self._found() or text
            if cause.code is grpc.StatusCode.UNIMPLEMENTED:
                text = (
                    f"{self.address} is no control address of a learner, but perhaps its address for actors: give the one in its "
                    "line learner_started as --control, or the name of the run"
                )
            raise UserError(_exit_code(cause), text) from None

    def _found(self) -> str:
        """Returns why no learner answers, if that can be told; empty otherwise.

        Raises:
            ValueError: The address has another form.
        """
        place = split_address(self.address)
        found = self._security.problem(*place)
        other = "" if found else self._security.other_service(*place)
        return f"no control address of a learner answers at {self.address}: {other}" if other else found

    def prove(self) -> None:
        """Checks that whoever answers knows the token, which no stranger may get who has the port of a killed learner.

        With TLS, the certificate has proved it.

        Raises:
            UserError: It does not (UNREACHABLE), or there is no such token (NOT_ALLOWED).
        """
        if self._token is None or self._security.ca is not None:
            return
        port = int(self.address.rpartition(":")[2])
        hashed, nonce = token_hash(self._token), secrets.token_bytes(_NONCE_BYTES)
        request = control_pb2.ProveRequest(nonce=nonce, claim=proof_of("caller", hashed, nonce, port))
        found = self._stub.Prove(request, timeout=CALL_SECONDS).proof
        if not hmac.compare_digest(found, proof_of("learner", hashed, nonce, port)):
            raise UserError(
                ExitCode.UNREACHABLE,
                f"whoever answers at {self.address} is not the learner: it does not know the token, which was not sent; if that "
                "was killed, start it again with the learner's --resume",
            )

    def _authorized(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of a call that changes the run, once whoever answers has proved to be its learner."""
        if self._run_id:
            self.status()
        return self._authorization()

    def _authorization(self) -> tuple[tuple[str, str], ...]:
        self.prove()
        return () if self._token is None else authorization(self._token)

    def status(self) -> control_pb2.StatusResponse:
        """Returns the state of the run."""
        metadata = self._authorization()
        found = self._stub.Status(control_pb2.StatusRequest(), timeout=CALL_SECONDS, metadata=metadata)
        if self._run_id and found.run_id != self._run_id:  # it took the port of a learner that was killed
            raise UserError(
                ExitCode.UNREACHABLE,
                f"the learner at {self.address} has run {printable(found.run_id)}, not {printable(self._run_id)}, whose learner "
                "no longer runs there: start it again with the learner's --resume",
            )
        return found

    def pause(self) -> None:
        """Pauses the run."""
        self._stub.Pause(control_pb2.PauseRequest(), timeout=CALL_SECONDS, metadata=self._authorized())

    def resume(self) -> None:
        """Ends a pause."""
        self._stub.Resume(control_pb2.ResumeRequest(), timeout=CALL_SECONDS, metadata=self._authorized())

    def save_checkpoint(self) -> str:
        """Saves a checkpoint and returns its path on the learner's machine."""
        return self._stub.SaveCheckpoint(
            control_pb2.SaveCheckpointRequest(), timeout=SAVE_SECONDS, metadata=self._authorized()
        ).path

    def drain(self, *, final: bool) -> None:
        """Ends the run; with `final` the actors exit too."""
        self._stub.Drain(control_pb2.DrainRequest(final=final), timeout=CALL_SECONDS, metadata=self._authorized())

    def release(self, actor_name: str, principal: str | None) -> int:
        """Lets an actor that is shut out in again; returns the number of actors of this name."""
        request = control_pb2.ReleaseActorRequest(actor_name=actor_name, principal=principal)
        return self._stub.ReleaseActor(request, timeout=CALL_SECONDS, metadata=self._authorized()).released

    def accepts_actors(self) -> bool:
        """Returns whether the run waits or trains, and is not paused, draining or failed."""
        return self.status().state in {control_pb2.RUN_STATE_WAITING, control_pb2.RUN_STATE_TRAINING}


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
    """Returns the addresses of the running learner with a control address; None if it is not in the folder."""
    found = (read_addresses(place) for place in _places(results_dir) if _runs(place) is not False)
    return next((each for each in found if each is not None and each.control == control), None)


def _places(results_dir: Path) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from run_places(results_dir)


def _exit_code(cause: WireError) -> ExitCode:
    if cause.reason in _NOT_SAVED:
        return ExitCode.NOT_SAVED
    if cause.code in _REFUSED or isinstance(cause, Draining):
        return ExitCode.NOT_ALLOWED
    return ExitCode.PROTOCOL_MISMATCH if cause.code is grpc.StatusCode.UNIMPLEMENTED else ExitCode.UNREACHABLE


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
    if addresses is not None and _is_of_another_machine(addresses) and is_local(addresses.control):
        raise UserError(
            ExitCode.UNREACHABLE,
            f"the learner of {folder} was started on {printable(addresses.host)} and its control address is reached only there: "
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
        raise UserError(
            ExitCode.UNREACHABLE, f"the learner of {folder} serves no page; start it with rollcast.http: true"
        )
    _require_answer(page_url(addresses.http))
    url = addresses.page_url
    token = read_token(folder)
    if token is not None:
        with Operator.of(replace(addresses, token=str(folder / TOKEN_FILE))) as operator:
            operator.prove()
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
