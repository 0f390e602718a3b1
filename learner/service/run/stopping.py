"""Handles requests to end a run. The first ends it gracefully, the second quickly, the third at once.

Only requests by the user count: signals, and requests by an operator. When a run ends by itself (``max_steps``, a
target, a time limit), the first signal still counts as the first. A terminal that closes (SIGHUP) counts as a first
signal, never as a second. The same signal again within a second is no other request: a signal to all processes of a
service or a job reaches the learner itself, and once more through ``serve --restarts``.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn

import structlog
from rollcast.signals import handling

from learner.shared.exits import ExitCode, UserError

log = structlog.get_logger(__name__)

OPERATOR: Final = "operator"
"""Reason of a stop that an operator requested."""
ACTORS_ENDED: Final = "actors_ended"
"""Reason of a stop because all actors that the command itself started have ended."""
SIGNAL: Final = "signal"
"""Reason of a stop by a signal."""
ECHO_SECONDS: Final = 1.0
"""Time in which the same signal counts once."""
_SHOW_CURSOR = "\x1b[?25h"


@dataclass(frozen=True, slots=True)
class Stop:
    """The end of a run, with its reason.

    Attributes:
        reason: ``target_return``, ``target_rating``, ``max_steps``, ``max_wall_seconds``, ``signal``, ``operator``,
            ``actors_ended``, ``trainer_failed``, or ``error`` of a run that does not train.
        final: True if actors exit, False if they wait to come back.
        error: Why the trainers failed, or why the service could not carry out one of their messages.
    """

    reason: str
    final: bool
    error: UserError | None = None


class Stopping:
    """Tracks whether and why the run ends. Only `ask_anywhere` may be called outside the event loop.

    Attributes:
        asked: Set once the run is asked to end.
        hurry: Set by the user's second request: the learner stops waiting for actors.
        stop: Why the run ends, None while it runs; an error of the trainers replaces a harmless reason.
        is_by_error: Whether nothing but an error asked the run to end.
        signal_name: Name of the first signal; empty before.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self.stop: Stop | None = None
        self.is_by_error = False
        self.signal_name = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals_count = 0
        self._newest: tuple[int, float] | None = None

    def ask(self, reason: str, *, final: bool, error: UserError | None = None) -> None:
        """Asks the run to end. The first reason counts, unless a later one is an error."""
        self.is_by_error = error is not None and (self.stop is None or self.is_by_error)
        if self.stop is None or (error is not None and self.stop.error is None):
            self.stop = Stop(reason, final=final, error=error)
        self.asked.set()

    def ask_anywhere(self, reason: str, final: bool, error: UserError | None = None) -> None:
        """Asks the run to end, from any thread; has no effect before `listening`."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: self.ask(reason, final=final, error=error))

    @contextlib.contextmanager
    def listening(self, *, takes_signals: bool = True) -> Iterator[None]:
        """Accepts requests from threads and signals within the block, which runs in the event loop's thread.

        The handlers are Python's and not the loop's, so that a signal is handled while the loop is busy.

        Args:
            takes_signals: Whether signals count; then the thread is the main one.
        """
        self._loop = asyncio.get_running_loop()
        try:
            with handling(self._on_signal) if takes_signals else contextlib.nullcontext():
                yield
        finally:
            self._loop = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Handles a signal. Takes no lock and writes no log: it runs between two instructions of the main thread."""
        if signal.Signals(number).name == "SIGHUP" and (self.stop is not None or self._signals_count):
            return  # a closing terminal may send several, and none is a request to hurry
        now = time.monotonic()
        if self._newest is not None and self._newest[0] == number and now - self._newest[1] < ECHO_SECONDS:
            return
        self._newest = number, now
        if self.stop is not None and self.stop.reason == OPERATOR and self._signals_count == 0:
            self._signals_count = 1
        self._signals_count += 1
        if self._signals_count > 2 or self._loop is None:
            _leave(signal.Signals(number).name)
        if self._signals_count == 1:
            self._loop.call_soon_threadsafe(self._ask_by_signal, signal.Signals(number).name)
        else:
            self._loop.call_soon_threadsafe(self._hurry_up, signal.Signals(number).name)

    def _ask_by_signal(self, name: str) -> None:
        if self.stop is not None:
            log.info(
                "already_stopping",
                reason=self.stop.reason,
                signal=name,
                action="everything is saved; a second signal skips waiting for actors, a third ends the learner at "
                "once",
            )
        self.signal_name = self.signal_name or name
        self.ask(SIGNAL, final=False)

    def _hurry_up(self, name: str) -> None:
        log.warning(
            "second_signal", signal=name, action="actors are no longer awaited; another signal ends the learner at once"
        )
        self.hurry.set()


def _leave(name: str) -> NoReturn:
    """Ends the process at once. Takes no lock, because another thread may hold it."""
    restore = _SHOW_CURSOR if os.isatty(2) else ""  # the panel hides the cursor
    line = (
        f"{restore}error: {name} received again: the learner ended at once without saving; to continue, add --resume to the "
        "same command\n"
    )
    with contextlib.suppress(OSError):
        os.write(2, line.encode())
    os._exit(ExitCode.INTERRUPTED)
