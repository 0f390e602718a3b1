"""Creates the callbacks of a run and runs each in a separate thread, so that it cannot disturb training."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import structlog
from rollcast.throttle import Throttle

from learner.shared import plugins
from learner.shared.exits import ExitCode, UserError
from learner.training.callbacks.base import METHODS, Event, RunEnded

log = structlog.get_logger(__name__)

ENTRY_POINTS = "rollcast.callbacks"
_SETTING = "rollcast.callbacks"

MAX_WAITING = 1000
"""Most events that wait for a slow callback; beyond that, the oldest are left out."""
MAX_FAILURES = 10
"""Consecutive calls that may raise before a callback is switched off."""
END_SECONDS = 10.0
"""Seconds that the end of a run waits for one callback."""
_LOG_SECONDS = 60.0


class CallbackRunner:
    """Passes events to one callback.

    Args:
        name: Name in the run file.
        callback: Any object with some of the methods of `learner.training.callbacks.base.Callback`.
        clock: Returns monotonic seconds.

    Attributes:
        failures: Number of calls that raised.
        missed: Number of events left out because too many waited.
        is_off: Whether it was switched off after too many consecutive failures.
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
        # Once, and here: attribute access may run the user's code, and events come from the trainers' thread.
        self._methods = {kind: self._method(callback, name) for kind, name in METHODS.items()}
        self._thread = threading.Thread(target=self._run, name=f"callback {name}", daemon=True)
        self._thread.start()

    def hears(self, kind: type) -> bool:
        """Returns whether the callback has a method for events of a type and is not switched off."""
        return not self.is_off and self._methods[kind] is not None

    def tell(self, event: Event) -> None:
        """Passes an event and returns at once; callable from any thread."""
        if not self.hears(type(event)):
            return
        with self._changed:
            if len(self._waiting) >= MAX_WAITING:
                self._waiting.popleft()
                self.missed += 1
            self._waiting.append(event)
            self._changed.notify()

    def end(self, event: RunEnded, seconds: float = END_SECONDS) -> None:
        """Reports the end of the run, and waits until all events were received, at most ``seconds``."""
        self.tell(event)
        with self._changed:
            self._is_ending = True
            self._changed.notify()
        self._thread.join(seconds)
        if self._thread.is_alive():
            log.warning(
                "callback_not_over",
                callback=self.name,
                waited_seconds=seconds,
                action="the run ends without waiting for it",
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
    """Creates each callback by calling what its name refers to, without arguments.

    Args:
        names: Names of entry points, or ``module:callable``.

    Raises:
        UserError: A name is unknown, or its callback cannot be created.
    """
    made: list[tuple[str, object]] = []
    for name in dict.fromkeys(names):
        callback = plugins.make(_SETTING, name, plugins.find(_SETTING, name, ENTRY_POINTS, {}))
        if not plugins.make(_SETTING, name, lambda callback=callback: _heard(callback)):  # type: ignore[misc]
            raise UserError(
                ExitCode.RUN_FILE,
                f"{_SETTING} names {name!r}, but the object it returns has none of the methods {', '.join(METHODS.values())}",
            )
        made.append((name, callback))
    return made


def _heard(callback: object) -> list[str]:
    """Returns the methods that a callback has; attribute access may run the user's code."""
    return [method for method in METHODS.values() if callable(getattr(callback, method, None))]
