"""What operators ask of a run by signals, where they have nothing but its process: save a checkpoint, pause, go on.

Those that ask for its end are in `learner.run.stopping`.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

import structlog
from rollcast.errors import WireError

from learner.run.control import RunControl

log = structlog.get_logger(__name__)

SAVE: Final = signal.SIGUSR1
PAUSE_OR_RESUME: Final = signal.SIGUSR2
_SAVE_SECONDS: Final = 300.0
"""As long as the ControlService gives callers without a deadline."""


class OperatorSignals:
    """Does what signals ask for, one after the other and outside the event loop.

    Args:
        control: of the run.
    """

    def __init__(self, control: RunControl) -> None:
        self._control = control
        # Its `put` may come in the middle of another one, as signals do.
        self._asked: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Takes signals within the block, which runs in the main thread; afterwards they are ignored.

        They are not for whoever was asked before: the system's answer to both is the end of the process.
        """
        threading.Thread(target=self._work, name="operator-signals", daemon=True).start()
        for number in (SAVE, PAUSE_OR_RESUME):
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            ignore()
            self._asked.put(None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Between any two instructions of the main thread: it takes no lock and writes no log."""
        self._asked.put(signal.Signals(number))

    def _work(self) -> None:
        deeds: dict[signal.Signals, Callable[[], None]] = {SAVE: self._save, PAUSE_OR_RESUME: self._pause_or_resume}
        while (number := self._asked.get()) is not None:
            try:
                deeds[number]()
            except (WireError, TimeoutError) as error:
                log.error(
                    "signal_not_done", signal=number.name, error=str(error) or "the present update takes too long"
                )
            except Exception as error:  # the next signal may go well
                log.error("signal_failed", signal=number.name, exc_info=error)

    def _save(self) -> None:
        log.info("checkpoint_saved", path=self._control.save_checkpoint(_SAVE_SECONDS), signal=SAVE.name)

    def _pause_or_resume(self) -> None:
        if self._control.is_paused:
            self._control.resume()
            log.info("resumed", signal=PAUSE_OR_RESUME.name)
        else:
            self._control.pause()
            log.info("paused", signal=PAUSE_OR_RESUME.name, action=f"{PAUSE_OR_RESUME.name} once more lets it go on")


def ignore() -> None:
    """Ignores these signals: for a process that starts or ends. In the main thread."""
    for number in (SAVE, PAUSE_OR_RESUME):
        signal.signal(number, signal.SIG_IGN)
