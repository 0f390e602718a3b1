"""Starts the process of the trainers, before the service has loaded what it needs itself."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from types import TracebackType
from typing import Final, Self

from rollcast.history import OWNER_VARIABLE

from learner.link.local import LocalConnection, LocalListener, connect_ranks, send_ring
from learner.link.ring import RingWriter
from learner.shared.exits import ExitCode, UserError
from learner.shared.platform import same_modules
from learner.shared.plugins import searched

_MOST_DIGITS: Final = 32
PROGRAM: Final = ("-m", "learner.start.trainer")
LAUNCHER: Final = ("-m", "learner.start.ranks")
END_SECONDS: Final = 10.0
"""Seconds that the process has to end after its connection was closed."""
_OF_LAUNCHERS: Final = frozenset({"RANK", "WORLD_SIZE"})


class StartedTrainers:
    """A process of trainers that has not been told what to train; it ends when this one does. A context manager.

    Args:
        ranks: Number of processes that train together; with more than one, `learner.start.ranks` starts them.

    Attributes:
        process: The process.

    Raises:
        UserError: There is no place for the link to the process.
    """

    def __init__(self, ranks: int = 1) -> None:
        self._ranks = ranks
        try:
            self._listener = listener = LocalListener(inherits_ring=ranks == 1)
        except OSError as error:
            raise UserError(
                ExitCode.RUN_FILE,
                f"the trainers cannot be started: {error.strerror or error}; the folder for temporary files (TMPDIR) must have a "
                "path of at most 80 characters and must be writable",
            ) from None
        program = PROGRAM if ranks == 1 else (*LAUNCHER, str(ranks))
        self.process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, *program],
            env={**environment(), **listener.environment(), OWNER_VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's signals reach the service alone
            pass_fds=listener.inherited,
        )
        self._ring = listener.ring()
        self._is_connected = False
        self._watch_thread = threading.Thread(target=self._watch, name="trainer-watch", daemon=True)
        self._watch_thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the process, if it has not ended by itself."""
        self._listener.close()
        self._wait(END_SECONDS if self._is_connected else 0.0)

    def kill(self) -> None:
        """Kills the process."""
        self.process.kill()

    def how_it_ended(self) -> str:
        """Waits for the end of the process, and returns how it ended."""
        code = self._wait(END_SECONDS)
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"code {code}"
        return f"the process of the trainers ended with {how}"

    def connect(self) -> list[tuple[LocalConnection, RingWriter | None]] | None:
        """Waits until all processes have connected, once; returns None if they have ended.

        Returns:
            Connection and ring of each rank, by its number.
        """
        found: dict[int, tuple[LocalConnection, RingWriter | None]] = {}
        processes: dict[int, int] = {}
        while len(found) < self._ranks:
            connection = self._listener.accept()
            if connection is None:
                break
            if self._ranks == 1:
                found[0] = connection, self._ring
                break
            with contextlib.suppress(EOFError, OSError, ValueError):  # a process that ended
                rank, process = map(int, connection.recv_bytes(_MOST_DIGITS).split())
                ring = send_ring(connection)
                for other, (its, _) in found.items():
                    connect_ranks((rank, process, connection), (other, processes[other], its))
                found[rank] = connection, ring
                processes[rank] = process
        self._listener.close()  # so that a service that is killed leaves no address behind
        self._is_connected = len(found) == self._ranks
        return [found[rank] for rank in sorted(found)] if self._is_connected else None

    def _wait(self, seconds: float) -> int:
        """Returns the exit code of the process, which is killed if it has not ended in time."""
        self._watch_thread.join(seconds)
        self.process.kill()
        return self.process.wait()

    def _watch(self) -> None:
        """Ends the wait for a process that ended before it connected."""
        self.process.wait()
        self._listener.give_up()


def environment() -> dict[str, str]:
    """Returns the variables of this process as its trainers get them.

    Variables that torchrun and others set for someone else's program say nothing about these trainers. Modules of the current
    folder hide others there only if they do so here, and modules beside the run file are found there as here.
    """
    found = {name: value for name, value in os.environ.items() if name not in _OF_LAUNCHERS}
    return {**found, **same_modules(), **searched()}
