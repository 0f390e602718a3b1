"""Makes the callbacks of a run, and runs each in a thread of its own, so that nothing it does reaches the training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from learner.callbacks.base import METHODS, Event, RunEnded
from learner.common import plugins
from learner.common.exits import ExitCode, UserError
from learner.observe.rates import Throttle

log = structlog.get_logger(__name__)

ENTRY_POINTS = "rollcast.callbacks"
_SETTING = "rollcast.callbacks"

MAX_WAITING = 1000
"""Events that wait for a slow callback; of more, the oldest are left out."""
MAX_FAILURES = 10
"""Calls in a row that may raise before a callback is switched off."""
END_SECONDS = 10.0
"""How long the end of a run waits for one callback."""
_LOG_SECONDS = 60.0


class CallbackRunner:
    """Tells one callback what happens.

    Args:
        name: as the run file has it.
        callback: any object with some of the methods of `learner.callbacks.base.Callback`.
        clock: monotonic seconds.

    Attributes:
        failures: calls that raised.
        missed: events that were left out, because too many waited.
        is_off: it was switched off, for it raised too often in a row.
    """

    def __init__(self, name: str, callback: object, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.failures = 0
        self.missed = 0
        self.is_off = False
        self._waiting: deque[Event] = deque()
        self._changed = threading.Condition()
        self._is_ending = False
        self._in_a_row = 0
        self._throttle = Throttle(_LOG_SECONDS, clock)
        # Once, and here: looking for an attribute may run code of the user's, and events come from the trainer's thread.
        self._methods = {kind: self._method(callback, name) for kind, name in METHODS.items()}
        self._thread = threading.Thread(target=self._run, name=f"callback {name}", daemon=True)
        self._thread.start()

    def hears(self, kind: type) -> bool:
        """Says whether the callback has a method for events of a kind, and is not switched off."""
        return not self.is_off and self._methods[kind] is not None

    def tell(self, event: Event) -> None:
        """Hands it an event, and returns at once; from any thread."""
        if not self.hears(type(event)):
            return
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self.missed += 1
            self._waiting.append(event)
            self._changed.notify()

    def end(self, event: RunEnded, seconds: float = END_SECONDS) -> None:
        """Tells it that the run has ended, and waits until it has heard everything, but no longer than some seconds."""
        self.tell(event)
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning(
                "callback_not_over", callback=self.name, waited_seconds=seconds, action="the run ends without it"
            )
        elif self.missed or self.failures:
            log.info("callback_over", callback=self.name, failures=self.failures, missed=self.missed)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ending)
                if not self._waiting:
                    return
                event = self._waiting.popleft()
            if not self.is_off:
                self._call(event)

    def _call(self, event: Event) -> None:
        method = self._methods[type(event)]
        if method is None:
            return
        try:
            method(event)
        except BaseException as error:  # noqa: BLE001 - told; sys.exit in a callback ends no run either
            self._note_failure(METHODS[type(event)], error)
        else:
            self._in_a_row = 0

    def _method(self, callback: object, name: str) -> Callable[[Any], object] | None:
        try:
            method = getattr(callback, name, None)
        except BaseException as error:  # noqa: BLE001 - told
            self._note_failure(name, error)
            return None
        return method if callable(method) else None

    def _note_failure(self, method: str, error: BaseException) -> None:
        self.failures += 1
        self._in_a_row += 1
        left_out = self._throttle.admit(None)
        if left_out is not None:
            repeated = {"left_out": left_out} if left_out else {}
            log.error("callback_failed", callback=self.name, method=method, exc_info=error, **repeated)
        if self._in_a_row >= MAX_FAILURES:
            self.is_off = True
            log.error("callback_switched_off", callback=self.name, failed_in_a_row=self._in_a_row)


def load_callbacks(names: Sequence[str]) -> list[tuple[str, object]]:
    """Makes each callback: what its name stands for is called without arguments.

    Args:
        names: of entry points, or ``module:callable``.

    Raises:
        UserError: a name is unknown, or its callback cannot be made.
    """
    made: list[tuple[str, object]] = []
    for name in dict.fromkeys(names):
        callback = plugins.make(_SETTING, name, plugins.find(_SETTING, name, ENTRY_POINTS, {}))
        if not plugins.make(_SETTING, name, lambda callback=callback: _heard(callback)):  # type: ignore[misc]
            raise UserError(
                ExitCode.RUN_FILE,
                f"{_SETTING} names {name!r}, but what it makes has none of {', '.join(METHODS.values())}",
            )
        made.append((name, callback))
    return made


def _heard(callback: object) -> list[str]:
    """Returns the methods that a callback has; looking for them may run code of the user's."""
    return [method for method in METHODS.values() if callable(getattr(callback, method, None))]
