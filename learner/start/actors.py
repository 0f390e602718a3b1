"""Runs the actors that ``train`` and ``serve`` start, and starts, identifies and ends those of other commands; needs no torch."""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Protocol

import structlog
from rollcast.addresses import is_everywhere, reached_here
from rollcast.auth import Role
from rollcast.extras import install
from rollcast.text import printable

from learner.service.identity.access import own_row
from learner.shared.exits import ExitCode, UserError
from learner.shared.platform import same_modules
from learner.shared.settings.addresses import is_local
from learner.shared.settings.service import ServiceSettings

END_SECONDS: Final = 30.0
"""Longest wait for an actor whose work is done; it may still write a video."""
ABORT_SECONDS: Final = 5.0
"""Longest wait after an interrupted command, and after a request to end."""

_RUNNER: Final = ("-m", "rollcast.watched")
_PACKAGE: Final = "actor_client"
"""Run as a program and never imported, because the learner works without it."""
_INSTALLED_BY: Final = {
    "gym": "actor,gym",
    "pettingzoo": "actor,pettingzoo",
    "boards": "actor,boards",
    "clients": "actor",
    "godot": "actor,gym",
}
_ENDED: Final = "actor_ended"
"""Event with the error that ended an actor."""
_PLAIN_ERROR: Final = "error: "
_LINE_CHARS: Final = 2000
_LINE_BYTES: Final = 1 << 16
"""Longer lines are several."""
_PRINCIPAL: Final = "local"
_TOKEN_BYTES: Final = 32
_OF_IDENTITY: Final = frozenset({"--certs", "--tls-ca", "--tls-cert", "--token-file"})
"""Flags of actors with an identity of the user's."""
_LEVELS: Final = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
_NO_FIELDS: Final = frozenset(
    {"self", "level", "event", "timestamp", "time", "actor", "exc_info", "stack_info", "logger"}
)
DESCRIBED: Final = "described: "
"""Begins the line in which an actor describes its environment as JSON."""

log = structlog.get_logger(__name__)


def require_actors(flag: str, kind: str, instead: str) -> None:
    """Checks that this installation has actors.

    Args:
        flag: The flag that asks for one, with its value.
        kind: The actor's command.
        instead: What else the user can do.

    Raises:
        UserError: The actor package is not installed.
    """
    if importlib.util.find_spec(_PACKAGE) is None:
        raise UserError(
            ExitCode.MISSING_EXTRA,
            f"{flag} starts an actor, which is not installed here: {install(_INSTALLED_BY[kind])}, or {instead}",
        )


def actor_program(*arguments: str) -> list[str]:
    """Returns the command line of an actor that ends with this process, if its input is a pipe from here."""
    return [sys.executable, *_RUNNER, _PACKAGE, *arguments]


def start_actor(
    command: Sequence[str], output: int, environ: Mapping[str, str] = MappingProxyType({})
) -> subprocess.Popen[bytes]:
    """Starts an actor that this terminal's signals do not reach, and that ends with this process.

    Args:
        command: Its command line, from `actor_program`.
        output: Descriptor of its output, as in `subprocess`.
        environ: Variables in addition to those of this process.
    """
    return subprocess.Popen(  # noqa: S603 - this interpreter
        command,
        env={**os.environ, **same_modules(), **environ},
        stdin=subprocess.PIPE,
        stdout=output,
        stderr=subprocess.STDOUT if output == subprocess.PIPE else None,
        start_new_session=True,
    )


def end_actor(process: subprocess.Popen[bytes], patience_seconds: float) -> None:
    """Waits for the end of an actor, asks it to end, and kills it if it does not."""
    for end, seconds in ((str, patience_seconds), (process.terminate, ABORT_SECONDS), (process.kill, None)):
        end()
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            break
    if process.stdin is not None:
        process.stdin.close()


class OwnIdentity:
    """How a learner knows the actors that its own command starts: by a token for this start alone, or in plain text.

    Close it when they have ended.

    Args:
        service: The learner's addresses and files.
        arguments: Further arguments of the actors; an identity that they name is left to the user.

    Attributes:
        tokens: Tokens that the learner accepts beside those of its file.
    """

    def __init__(self, service: ServiceSettings, arguments: Sequence[str] = ()) -> None:
        files = service.identity_files
        has_tls, is_given = files.cert is not None, bool(_OF_IDENTITY & {each.partition("=")[0] for each in arguments})
        self._ca = files.ca if has_tls and not is_given else None
        self._plain = ["--insecure"] if not has_tls and not is_local(service.address) else []
        self._token = secrets.token_urlsafe(_TOKEN_BYTES)
        self._files = ExitStack()
        self.tokens = () if self._ca is None else (own_row(_PRINCIPAL, Role.ACTOR, self._token),)

    def flags(self) -> list[str]:
        """Returns the flags by which actors know the learner's certificate, and have a token in a file of this user alone."""
        if self._ca is None:
            return self._plain
        folder = self._files.enter_context(tempfile.TemporaryDirectory(prefix="rollcast-", ignore_cleanup_errors=True))
        file = Path(folder, "token")
        file.touch(0o600)
        file.write_text(self._token)
        return ["--tls-ca", str(self._ca), "--token-file", str(file)]

    def close(self) -> None:
        """Removes the file of the token."""
        self._files.close()


class ActorsRequest(Protocol):
    """Arguments of actors that a command starts beside its learner."""

    @property
    def arguments(self) -> tuple[str, ...]:
        """Further arguments of each actor."""

    @property
    def service(self) -> ServiceSettings:
        """The learner's addresses and files."""

    @property
    def may_move(self) -> bool:
        """Whether the learner may take another port, because the user did not choose the one in use."""

    @property
    def chosen(self) -> str:
        """The settings that were chosen, as a line for the user; empty for a run file of the user."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the actors."""

    @property
    def page(self) -> str:
        """Address of the page on which a browser is a client; empty if there is none."""

    def another_machine(self, address: str) -> str:
        """Returns how other machines join a run, as a line for the user; empty to say nothing."""

    def command(self, address: str, name: str) -> Sequence[str]:
        """Returns the command that starts an actor."""


class TrainingActors:
    """The actors that a command starts once the learner listens. A context manager, which ends them.

    Their lines are lines of the learner's log, with the name of the actor. Create it and start the actors in the main thread.

    Args:
        request: Arguments of the actors.

    Attributes:
        may_move: Whether the learner may take another port, because the user did not choose the one in use.
        chosen: The settings that were chosen, as a line for the user; empty for a run file of the user.
        page: Address of the page on which a browser is a client; empty if there is none.
        tokens: Tokens by which a learner with TLS knows these actors; none if the user gave them an identity.
        error: The error of the last actor, if all have ended by themselves and it has failed.
    """

    def __init__(self, request: ActorsRequest) -> None:
        self._request = request
        self._actors: list[_LoggedActor] = []
        self._lock = threading.Lock()
        self._running = 0
        self._is_closing = False
        self._on_end: Callable[[], object] = str
        self.may_move = request.may_move
        self.chosen = request.chosen
        self.page = request.page
        self._identity = OwnIdentity(request.service, request.arguments)
        self.tokens = self._identity.tokens
        self.error: UserError | None = None

    def __enter__(self) -> TrainingActors:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self, address: str, on_end: Callable[[], object]) -> None:
        """Starts the actors, unless they run already: actors outlive a process of trainers.

        Args:
            address: Address of the learner, ``host:port``.
            on_end: Called in a thread when the last actor has ended by itself.
        """
        with self._lock:
            self._on_end = on_end
            if self._actors:
                return
            self._running = len(self._request.names)
        if how := self._request.another_machine(address):
            log.info("more_machines", how=how)
        identity = self._identity.flags()
        for name in self._request.names:
            command = [*self._request.command(address, name), *identity]
            self._actors.append(_LoggedActor(name, command, self._ended))

    def close(self, patience_seconds: float = 0.0, joined: Collection[str] = ()) -> None:
        """Ends the actors.

        Args:
            patience_seconds: Longest wait for those that end by themselves.
            joined: Their names. The others look for a learner that no longer listens, as those of a run that was over before.
        """
        with self._lock:
            self._is_closing = True
        for actor in self._actors:
            actor.end(patience_seconds if actor.name in joined else 0.0)
        self._identity.close()

    def _ended(self, actor: _LoggedActor, code: int) -> None:
        """Notes the end of an actor: a failure is logged while other actors continue; the end of the last one ends the run."""
        with self._lock:
            self._running -= 1
            if self._is_closing:
                return
            is_last, on_end = self._running == 0, self._on_end
        error = actor.error(code)
        if is_last:
            self.error = error
            on_end()
        elif error is not None:
            log.warning(_ENDED, actor=actor.name, error=error.message, exit_code=error.code, others=self._running)


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Arguments of the actors of ``train``.

    Attributes:
        env: Environment, as for `--env` of the actor.
        actors: Number of actors.
        arguments: Further arguments of each actor.
        service: The learner's addresses and files.
        may_move: Whether the learner may take another port, because the user did not choose the one in use.
        flags: Flags of an actor with the same environment, for a shell.
        chosen: The settings that were chosen, as a line for the user; empty for a run file of the user.
        page: Empty: there are no clients.
        kind: The actors' command.
    """

    env: str
    actors: int
    arguments: tuple[str, ...]
    service: ServiceSettings
    may_move: bool
    flags: str
    chosen: str
    kind: str = "gym"
    page: str = ""

    def another_machine(self, address: str) -> str:
        """Returns how other machines join a run, as a line for the user.

        Args:
            address: Address of the learner, ``host:port``.
        """
        host, _, port = address.rpartition(":")
        security = "--certs DIR" if self.service.identity_files.cert is not None else "--insecure"
        if is_local(address):
            return f"to let other machines join, start with --address 0.0.0.0:{port} {security}"
        name = socket.gethostname() if is_everywhere(address) else host
        return f"other machines join with: rollcast act {self.kind} {self.flags} --learner {name}:{port} {security}"

    @property
    def names(self) -> list[str]:
        """Names of the actors. They are the same at each start, so that an actor keeps its index and its seeds."""
        return ["local"] if self.actors == 1 else [f"local-{number}" for number in range(1, self.actors + 1)]

    def command(self, address: str, name: str) -> list[str]:
        """Returns the command that starts an actor.

        Args:
            address: Address of the learner, ``host:port``.
            name: Name of the actor.
        """
        command = actor_program(self.kind, "--env", self.env, "--learner", reached_here(address), "--name", name)
        return [*command, "--log-format", "json", "--log-level", "warning", *self.arguments]


class _LoggedActor:
    """A process whose output becomes lines of the log."""

    def __init__(self, name: str, command: Sequence[str], on_end: Callable[[_LoggedActor, int], object]) -> None:
        self.name = name
        self._on_end = on_end
        self._failure = Failure()
        self._process = start_actor(command, subprocess.PIPE)
        self._thread = threading.Thread(target=self._follow, name=f"actor-{name}", daemon=True)
        self._thread.start()

    def end(self, patience_seconds: float) -> None:
        """Waits for its end and its last line, and ends it if it does not end by itself."""
        end_actor(self._process, patience_seconds)
        self._thread.join(ABORT_SECONDS)  # a process that it left behind may hold its output open

    def error(self, code: int) -> UserError | None:
        """Returns its own error, with its own exit code; None if it ended as it should."""
        return None if code == 0 else self._failure.error(f"the actor {self.name}", code)

    def _follow(self) -> None:
        output = self._process.stdout
        if output is not None:
            with output:
                while line := output.readline(_LINE_BYTES):
                    self._take(line.decode(errors="replace").rstrip())
        self._on_end(self, self._process.wait())

    def _take(self, line: str) -> None:
        """Logs a line, unless it has the error that ends the actor."""
        if self._failure.take(line):
            return
        event = _event(line)
        if event is None:
            log.info("actor_output", actor=self.name, line=printable(line, _LINE_CHARS))
            return
        # An environment may print anything, JSON too.
        fields = {key: value for key, value in event.items() if key.isidentifier() and key not in _NO_FIELDS}
        level = _LEVELS.get(str(event.get("level")), logging.WARNING)
        log.log(level, printable(str(event["event"])), actor=self.name, **fields)


class Failure:
    """Finds the error that ended an actor in its lines."""

    def __init__(self) -> None:
        self._message = ""
        self._details: tuple[str, ...] = ()

    def take(self, line: str) -> bool:
        """Returns whether a line has the error, and keeps it then."""
        event = _event(line)
        if event is not None and event.get("event") == _ENDED:
            self._message = str(event.get("error", ""))
            self._details = tuple(str(event.get("exception", "")).splitlines())
        elif line.startswith(_PLAIN_ERROR):  # the actor has not read yet how to write its log
            self._message = line.removeprefix(_PLAIN_ERROR)
        else:
            return not line
        return True

    def error(self, who: str, code: int) -> UserError:
        """Returns the actor's own error with its own exit code, or an error that says how it ended.

        Args:
            who: What the actor is called.
            code: Its exit code, negative for a signal.
        """
        how = f"{who} was killed by signal {-code}" if code < 0 else f"{who} ended with exit code {code}"
        return UserError(
            ExitCode.ACTORS_FAILED,
            self._message or how,
            self._details,
            code=code if code > 0 else ExitCode.ACTORS_FAILED,
        )


def _event(line: str) -> Mapping[str, Any] | None:
    """Returns a line of a JSON log; None for another line."""
    if not line.startswith("{"):
        return None
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and "event" in event else None
