"""How a run is asked to end, by signals above all: the first ends it in good order, the second at speed, the third now.

A terminal that closes (SIGHUP) is a first signal, and never a second one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import NoReturn

import structlog

from learner.common.exits import ExitCode

log = structlog.get_logger(__name__)

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_SHOW_CURSOR = "\x1b[?25h"


@dataclass(frozen=True, slots=True)
class Stop:
    """Why a run ends.

    Attributes:
        reason: ``target_return``, ``max_steps``, ``max_wall_seconds``, ``signal``, ``operator``, ``trainer_failed``.
        final: actors exit; else they come back.
        error: what the trainer thread raised.
    """

    reason: str
    final: bool
    error: BaseException | None = None


class Stopping:
    """Whether and why the run ends. Make it anywhere; everything but `ask_anywhere` belongs to the event loop.

    Attributes:
        asked: set once something asks for the end.
        hurry: set by a signal that comes while the run ends: actors are not waited for any longer.
        stop: why it ends, None while it goes on; an error of the trainer's takes the place of a harmless reason.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurry = asyncio.Event()
        self.stop: Stop | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._signals_count = 0

    def ask(self, reason: str, *, final: bool, error: BaseException | None = None) -> None:
        """Asks for the end of the run; the first reason counts, unless a later one is an error."""
        if self.stop is None or (error is not None and self.stop.error is None):
            self.stop = Stop(reason, final=final, error=error)
        self.asked.set()

    def ask_anywhere(self, reason: str, final: bool, error: BaseException | None = None) -> None:
        """Does what `ask` does, from any thread; nothing before `listening`."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(lambda: self.ask(reason, final=final, error=error))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Takes requests from threads and signals within the block, which runs in the event loop's thread.

        The handlers are Python's and not the loop's, so that a signal gets through while the loop is busy.
        """
        self._loop = asyncio.get_running_loop()
        # Behind nohup it is ignored, and stays so.
        is_deaf = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        wanted = [number for number in _SIGNALS if number != signal.SIGHUP or not is_deaf]
        before = {number: signal.signal(number, self._on_signal) for number in wanted}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self._loop = None

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Between any two instructions of the main thread: it takes no lock and writes no log."""
        if number == signal.SIGHUP and (self.stop is not None or self._signals_count):
            return  # a terminal that closes says so more than once: nobody is in a hurry
        if self.stop is not None and self._signals_count == 0:
            self._signals_count = 1  # the run ends for another reason: whoever signals now wants it to end sooner
        self._signals_count += 1
        if self._signals_count > 2 or self._loop is None:
            _leave(signal.Signals(number).name)
        if self._signals_count == 1:
            self._loop.call_soon_threadsafe(lambda: self.ask("signal", final=False))
        else:
            self._loop.call_soon_threadsafe(self._hurry_up, signal.Signals(number).name)

    def _hurry_up(self, name: str) -> None:
        log.warning("second_signal", signal=name, action="actors are not waited for; once more ends it at once")
        self.hurry.set()


def _leave(name: str) -> NoReturn:
    """Ends the process at once; whatever lock another thread holds, this takes none."""
    restore = _SHOW_CURSOR if os.isatty(2) else ""  # the panel hides it
    line = f"{restore}error: {name} once more: the learner ended at once, nothing more was saved; go on with --resume\n"
    with contextlib.suppress(OSError):
        os.write(2, line.encode())
    os._exit(ExitCode.INTERRUPTED)
