"""Carries out requests that operators send as signals: save a checkpoint (SIGUSR1), pause or resume (SIGUSR2).

On systems without these signals only the operator commands exist. Signals that end a run are in
`learner.service.run.stopping`.
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

from learner.service.identity.audit import Audit, Source
from learner.service.run.control import RunControl
from learner.shared.platform import operator_signal_numbers

log = structlog.get_logger(__name__)

_SAVE_SECONDS: Final = 300.0
"""Seconds allowed for a checkpoint."""


class OperatorSignals:
    """Carries out requests made by signals, one at a time and outside the event loop.

    Args:
        control: Control of the run.
        audit: Records the requests.
    """

    def __init__(self, control: RunControl, audit: Audit) -> None:
        self._control = control
        self._audit = audit
        # A SimpleQueue, because a signal can interrupt its `put` with another `put`.
        self._asked: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handles the signals within the block, which runs in the main thread; ignores them afterwards.

        The previous handlers are not restored, because the default action for both signals ends the process.
        """
        threading.Thread(target=self._work, name="operator-signals", daemon=True).start()
        for number in operator_signal_numbers():
            signal.signal(number, self._on_signal)
        try:
            yield
        finally:
            ignore()
            self._asked.put(None)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Queues a request. Takes no lock and writes no log: it runs between two instructions of the main thread."""
        self._asked.put(signal.Signals(number))

    def _work(self) -> None:
        requests: dict[str, Callable[[str], None]] = {"SIGUSR1": self._save, "SIGUSR2": self._pause_or_resume}
        while (number := self._asked.get()) is not None:
            try:
                requests[number.name](number.name)
            except (WireError, TimeoutError) as error:
                log.error(
                    "signal_not_done", signal=number.name, error=str(error) or "the current update takes too long"
                )
            except Exception as error:  # the next signal may succeed
                log.error("signal_failed", signal=number.name, exc_info=error)

    def _save(self, name: str) -> None:
        with self._audit.noting("save", Source("signal", name)) as details:
            details["path"] = path = self._control.save_checkpoint(_SAVE_SECONDS)
        log.info("checkpoint_saved", path=path, signal=name)

    def _pause_or_resume(self, name: str) -> None:
        action, act = ("resume", self._control.resume) if self._control.is_paused else ("pause", self._control.pause)
        log.info("operator_request", action=action, signal=name)
        with self._audit.noting(action, Source("signal", name)):
            act()


def ignore() -> None:
    """Ignores these signals while a process starts or ends. Call it in the main thread."""
    for number in operator_signal_numbers():
        signal.signal(number, signal.SIG_IGN)
