"""Starts the process of the trainers, before the service has loaded what it needs itself."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from types import TracebackType
from typing import Final, Self

from learner.link.door import Door, LocalConnection

PROGRAM: Final = ("-m", "learner.commands.trainer")
END_SECONDS: Final = 10.0
"""Seconds that the process has to end after its connection was closed."""


class StartedTrainers:
    """A process of trainers that has not been told what to train; it ends when this one does. A context manager.

    Attributes:
        process: The process.
        ring: This side of the ring for large messages; None without one.
    """

    def __init__(self) -> None:
        self._door = door = Door()
        self.process = subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, *PROGRAM],
            env={**os.environ, **door.environment()},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # a terminal's signals reach the service alone
            pass_fds=door.inherited,
        )
        self.ring = door.ring()
        self._is_connected = False
        threading.Thread(target=self._watch, name="trainer-watch", daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Ends the process, if it has not ended by itself."""
        self._door.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS if self._is_connected else 0.0)
        self.process.kill()
        self.process.wait()

    def connect(self) -> LocalConnection | None:
        """Waits until the process has connected, once; returns None if it has ended."""
        connection = self._door.accept()
        self._door.close()  # so that a service that is killed leaves no address behind
        self._is_connected = connection is not None
        return connection

    def _watch(self) -> None:
        """Ends the wait for a process that ended before it connected."""
        self.process.wait()
        self._door.give_up()
