"""Takes trainers that someone else starts, on any machines, instead of starting them here."""

from __future__ import annotations

import secrets
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from learner.link.stream import StreamConnection
from learner.service.identity.setup import identity_of
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import TRAINERS_FILE, AwaitedAddress, write_awaited
from learner.shared.settings.service import ServiceSettings
from learner.start.rank_handshake import RankHandshake

log = structlog.get_logger(__name__)


class AwaitedTrainers:
    """Trainers that dial the service by themselves. A context manager, in place of `StartedTrainers`.

    Args:
        address: Where the service listens for them.
        service: Settings of the service: its identity, and the number of trainers.
        folder: The run folder.

    Raises:
        UserError: The address cannot be used, or a file of the identity.
    """

    def __init__(self, address: str, service: ServiceSettings, folder: Path) -> None:
        self._ranks = service.trainers
        self._folder = folder
        try:
            self._handshake = RankHandshake(
                address, identity_of(service, folder=folder), service.trainers, version("rollcast")
            )
        except OSError as error:
            raise UserError(
                ExitCode.PORT_IN_USE, f"cannot listen for trainers on {address}: {error.strerror or error}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Stops listening."""
        self._handshake.close()

    def connect(self) -> list[tuple[StreamConnection, None]] | None:
        """Waits until all trainers have come, and returns their connections; None after the end of the block."""
        attempt = secrets.token_hex(8)
        write_awaited(self._folder, AwaitedAddress(attempt, self._handshake.address))
        log.info("waiting_for_trainers", address=self._handshake.address, trainers=self._ranks)
        found = self._handshake.gather(attempt, self._folder.absolute())
        return None if found is None else [(connection, None) for connection in found]

    def kill(self) -> None:
        """Ends the wait for operators; the trainers end with their connections."""
        (self._folder / TRAINERS_FILE).unlink(missing_ok=True)

    def how_it_ended(self) -> str:
        """Returns what the loss of a connection means."""
        return "a trainer on another machine ended, or its connection broke"
