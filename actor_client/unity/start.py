"""The first moments of `rollcast-actor unity`: ports open, and only then everything else is imported.

A player calls once, at its start, and plays untrained if nothing listens: whoever starts an editor or a build beside the
actor shall not have to wait for it. Of large packages only gRPC is loaded before.
"""

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from actor_client.exits import ActorError, ExitCode
from actor_client.platform import stop_signals
from actor_client.settings.addresses import Ports, early_ports
from actor_client.unity.server import Exchange, PlayerServer

FAREWELL: Final = b"\x0a\x03\x08\x90\x03"
"""A UnityMessageProto whose header has status 400, for which no generated code need be loaded."""
_FAREWELL_SECONDS: Final = 1.0
"""What an answer that waits may take to go out."""


class Door:
    """Stands where a player calls, until the conversation with it can begin."""

    def __init__(self) -> None:
        self._decided = threading.Event()
        self._conversation: Exchange | None = None

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Answers a message, at the earliest once it is known who does."""
        self._decided.wait()
        return FAREWELL if self._conversation is None else self._conversation.exchange(request, peer)

    def open(self, conversation: Exchange) -> None:
        """Lets a conversation answer, also who waits already."""
        self._conversation = conversation
        self._decided.set()

    def close(self) -> None:
        """Tells who waits that there will be no conversation; without effect on one that has begun."""
        self._decided.set()


def run(flags: Mapping[str, object]) -> int:
    """Serves players until the run is over, the time is over, or a signal comes.

    Args:
        flags: What the command line gave, by setting.

    Returns:
        The exit code. What ended the actor has been said on standard error.

    Raises:
        ActorError: The command line is wrong, a port is in use, or a module is missing.
    """
    stops: list[str] = []
    try:
        with stop_signals(stops.append):  # until the actor has its own: amid an import nothing can be ended in order
            early = early_ports(flags, os.environ)
            if early is None:
                return _go_on(flags, None, stops)
            with listening(early) as doors:
                return _go_on(flags, doors, stops)
    except ActorError as error:
        leave_error(flags.get("error_file"), error)
        raise


def leave_error(file: object, error: ActorError) -> None:
    """Writes what ended the actor to the file of `--error-file`, if there is one.

    Args:
        file: Its path; None for none.
        error: What ended it.
    """
    if file is not None:
        with suppress(OSError):  # it is said on standard error in any case
            Path(str(file)).write_text(error.message, encoding="utf-8")


@contextmanager
def listening(ports: Ports) -> Iterator[Sequence[Door]]:
    """Listens for players within the block; yields a door a player.

    Raises:
        ActorError: A port is in use, or an address is not one of this machine (PORT_IN_USE).
    """
    doors = tuple(Door() for _ in range(ports.players))
    servers = [
        PlayerServer(worker, ports.hosts, ports.first + worker, door, ports.max_message_bytes)
        for worker, door in enumerate(doors)
    ]
    try:
        for server in servers:
            server.start()
        yield doors
    finally:
        for door in doors:
            door.close()
        for server in servers:
            server.stop(_FAREWELL_SECONDS)


def _go_on(flags: Mapping[str, object], doors: Sequence[Door] | None, stops: Sequence[str]) -> int:
    """Imports the rest, checks all settings, and serves.

    Args:
        flags: What the command line gave, by setting.
        doors: Where players call; None if that is known from the settings alone.
        stops: Becomes the name of the signal that has asked the actor to end meanwhile.

    Raises:
        ActorError: The command line is wrong, a port is in use, or a module is missing.
    """
    try:
        from actor_client.settings.commands import UnitySettings  # noqa: PLC0415
        from actor_client.settings.loading import load  # noqa: PLC0415 - see above

        settings = load(UnitySettings, flags)  # before what is slow: whoever mistyped hears of it soon
        from actor_client.unity.app import run_unity  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise ActorError(
            ExitCode.MISSING_EXTRA,
            f"this command needs the module {error.name!r}; in the checkout: pip install '.[actor,unity]'",
        ) from None
    if doors is not None:
        return run_unity(settings, doors, stops)
    with listening(settings.ports) as late:
        return run_unity(settings, late, stops)
