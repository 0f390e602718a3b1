"""Carries out the requests of operators and signals to a running learner, from any thread."""

from __future__ import annotations

import contextlib
import queue
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from types import FrameType, MappingProxyType
from typing import Final

import structlog
from rollcast.enums import HoldReason
from rollcast.errors import CheckpointFailed, Draining, NothingToSave, SettingRefused, WireError

from learner.link.control import Answer, Request, RequestKind, SettingChange
from learner.link.to_front import Send, SetHold
from learner.service.identity.audit import Audit, Requester
from learner.service.run.stopping import OPERATOR
from learner.shared.platform import operator_signal_numbers

log = structlog.get_logger(__name__)

_ACTION: Final = "resume with rollcast resume, the button of the status page, or SIGUSR2"
_PAUSE_SECONDS = 60.0
"""Longest wait of a pause for the end of the current update, in seconds."""
_PAUSES: Final = frozenset({RequestKind.PAUSE, RequestKind.RESUME})
_SAVE_SECONDS: Final = 300.0
"""Seconds allowed for a checkpoint."""


class RunControl:
    """Implements `learner.service.web.hooks.OperatorActions` for a learner: asks the trainers over the link.

    Args:
        ask: Sends the trainers a request; pass their answer to `answer`.
        is_ending: Returns whether the run was asked to end; callable from any thread.
        request_stop: Asks the run to end; callable from any thread.
        send: Sends the service a command, to hold actors during a pause.
        on_changed: Called with the changes of settings, in the thread of `answer`.
    """

    def __init__(
        self,
        ask: Callable[[Request], object],
        *,
        is_ending: Callable[[], bool],
        request_stop: Callable[[str, bool], None],
        send: Send,
        on_changed: Callable[[tuple[SettingChange, ...]], object] = lambda _: None,
    ) -> None:
        self._ask = ask
        self._on_changed = on_changed
        self._is_ending = is_ending
        self._request_stop = request_stop
        self._send = send
        self._lock = threading.Lock()
        self._last = 0
        self._asked: dict[int, tuple[RequestKind, Future[Answer]]] = {}
        self._is_closed = False
        self._is_paused = False

    @property
    def is_paused(self) -> bool:
        """True if the trainers are paused."""
        return self._is_paused

    def pause(self) -> None:
        """Holds the actors and stops the trainers after the current update; safe to repeat.

        Raises:
            Draining: The run is ending.
            TimeoutError: The current update takes too long.
        """
        self._refuse_at_end("paused", is_refused=self._is_ending())
        self._send(SetHold(HoldReason.PAUSED, active=True))
        answer = self._requested(RequestKind.PAUSE).result(_PAUSE_SECONDS)
        self._refuse_at_end("paused", is_refused=bool(answer.reason))

    def stay_paused(self) -> None:
        """Pauses trainers that have just started, as those before them were; does not wait for their answer."""
        self._is_paused = True
        self._send(SetHold(HoldReason.PAUSED, active=True))
        self._requested(RequestKind.PAUSE)
        log.info("paused", action=_ACTION)

    def resume(self) -> None:
        """Lets trainers and actors continue.

        Raises:
            Draining: The run is ending.
            TimeoutError: The current update takes too long.
        """
        self._refuse_at_end("resumed", is_refused=self._is_ending())
        answer = self._requested(RequestKind.RESUME).result(_PAUSE_SECONDS)
        self._refuse_at_end("resumed", is_refused=bool(answer.reason))

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Saves a checkpoint after the current update and returns its path; shared by all requests that wait for it.

        Raises:
            NothingToSave: No behavior is declared.
            CheckpointFailed: The checkpoint could not be written.
            TimeoutError: The checkpoint took too long.
        """
        answer = self._requested(RequestKind.SAVE).result(timeout_seconds)
        if answer.reason == NothingToSave.default_reason:
            raise NothingToSave(answer.message)
        if answer.reason:
            raise CheckpointFailed(answer.message)
        return answer.path

    def change(self, values: Mapping[str, str], principal: str) -> tuple[SettingChange, ...]:
        """Changes settings after the current update, all or none; without values, undoes the last change.

        Raises:
            Draining: The run is ending.
            SettingRefused: A name or a value is refused, or there is nothing to undo.
            TimeoutError: The current update takes too long; the change follows it.
        """
        self._refuse_at_end("changed", is_refused=self._is_ending())
        kind = RequestKind.SET if values else RequestKind.UNDO
        answer = self._requested(kind, values, principal).result(_PAUSE_SECONDS)
        if answer.reason == SettingRefused.default_reason:
            raise SettingRefused(answer.message)
        self._refuse_at_end("changed", is_refused=bool(answer.reason))
        return answer.changes

    def drain(self, *, final: bool) -> None:
        """Asks the run to end, and returns at once."""
        self._request_stop(OPERATOR, final)

    def answer(self, answer: Answer) -> None:
        """Accepts an answer of the trainers, and logs each pause and its end. Callable from any thread."""
        with self._lock:
            before = self._is_paused
            kind, asked = self._asked.pop(answer.number, (RequestKind.SAVE, None))
            if not answer.reason and kind in _PAUSES:  # even if the caller no longer waits
                self._is_paused = kind is RequestKind.PAUSE
                self._send(SetHold(HoldReason.PAUSED, active=self._is_paused))
            is_paused = self._is_paused
        if answer.changes:
            self._on_changed(answer.changes)
        if asked is not None:
            asked.set_result(answer)
        if is_paused is not before:
            log.info("paused", action=_ACTION) if is_paused else log.info("resumed")

    def close(self) -> None:
        """Answers all waiting and later requests, because the trainers no longer answer."""
        with self._lock:
            self._is_closed = True
            numbers = list(self._asked)
        for number in numbers:
            self.answer(_ended(number))

    @staticmethod
    def _refuse_at_end(what: str, *, is_refused: bool) -> None:
        if is_refused:
            raise Draining(f"the run is ending: it can no longer be {what}")

    def _requested(
        self, kind: RequestKind, values: Mapping[str, str] = MappingProxyType({}), principal: str = ""
    ) -> Future[Answer]:
        asked: Future[Answer] = Future()
        with self._lock:
            self._last += 1
            number = self._last
            self._asked[number] = kind, asked
        self._ask(Request(number, kind, values, principal))
        if self._is_closed:
            self.answer(_ended(number))
        return asked


def _ended(number: int) -> Answer:
    return Answer(
        number,
        reason=NothingToSave.default_reason,
        message="the run is ending; its last checkpoint is being written",
    )


class OperatorSignals:
    """Carries out requests made by signals, one at a time and outside the event loop: SIGUSR1 saves, SIGUSR2 pauses or resumes.

    On systems without these signals only the operator commands exist. Signals that end a run are in
    `learner.service.run.stopping`.

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
        with self._audit.noting("save", Requester("signal", name)) as details:
            details["path"] = path = self._control.save_checkpoint(_SAVE_SECONDS)
        log.info("checkpoint_saved", path=path, signal=name)

    def _pause_or_resume(self, name: str) -> None:
        action, act = ("resume", self._control.resume) if self._control.is_paused else ("pause", self._control.pause)
        log.info("operator_request", action=action, signal=name)
        with self._audit.noting(action, Requester("signal", name)):
            act()


def ignore() -> None:
    """Ignores these signals while a process starts or ends. Call it in the main thread."""
    for number in operator_signal_numbers():
        signal.signal(number, signal.SIG_IGN)
