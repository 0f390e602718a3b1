"""The body of the one thread in which all trainers of a learner take their turns."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import structlog

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)


class BusyClock:
    """Measures one thread's waits; what is no wait is work, the turn that goes on included.

    Args:
        clock: monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        # Waited seconds, and when the wait that goes on began: replaced whole, so that readers need no lock.
        self._waits: tuple[float, float | None] = (0.0, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """The block is a wait."""
        waited_seconds, _ = self._waits
        begun = self._clock()
        self._waits = waited_seconds, begun
        try:
            yield
        finally:
            self._waits = waited_seconds + self._clock() - begun, None

    @property
    def busy_seconds(self) -> float:
        """Seconds since the clock was made that were not waited; from any thread. Never falls by more than a moment."""
        waited_seconds, waits_since = self._waits
        now = self._clock()
        if waits_since is not None:
            waited_seconds += max(0.0, now - waits_since)
        return max(0.0, now - self._begun - waited_seconds)


class RequestsClosedError(RuntimeError):
    """The trainer thread has ended and answers no more."""


class RequestQueue:
    """A queue of calls with results. Any thread may `submit`; one thread runs them with `run_pending`.

    Args:
        wake: called after each submission, so that the running thread stops waiting.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Asks for a call; the future holds its result, or what it raised."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        if self._closed:
            self._refuse_pending()
        self._wake()
        return future

    def run_pending(self) -> bool:
        """Runs what was asked for so far; returns whether there was anything."""
        is_busy = False
        while not self._calls.empty():
            call, future = self._calls.get()
            is_busy = True
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                future.set_exception(error)
        return is_busy

    def close(self) -> None:
        """Answers everything that waits, and everything to come, with `RequestsClosedError`."""
        self._closed = True
        self._refuse_pending()

    def _refuse_pending(self) -> None:
        while True:
            try:
                _, future = self._calls.get_nowait()
            except queue.Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(RequestsClosedError("the trainer thread has ended"))


T = TypeVar("T")

_IDLE_SECONDS = 0.5
"""Longest wait without a look at everything; events cut it short, so this only bounds the harm of a missed one."""


class TrainerLoop:
    """Builds a trainer for each behavior as it is declared, and gives each its turn.

    Run `run` in a thread. All other methods may be called from any thread.

    Args:
        behaviors: where new behaviors appear.
        build: makes the trainer of a behavior, with a saved state already loaded if there is one.
        on_failure: told what ended the loop; called in the loop's thread.
        before_turn: called before each turn that trainers take; lock-step decides there what they get.
        after_turn: called between two turns, for work that is due by time (displays, recovery checkpoints).
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        build: Callable[[Behavior], Trainer],
        *,
        on_failure: Callable[[BaseException], None],
        before_turn: Callable[[], None] | None = None,
        after_turn: Callable[[], None] | None = None,
    ) -> None:
        self._behaviors = behaviors
        self._build = build
        self._on_failure = on_failure
        self._before_turn = before_turn
        self._after_turn = after_turn
        self._trainers: dict[str, Trainer] = {}
        self._finished: set[str] = set()
        self._requests = RequestQueue(behaviors.to_trainer.set)
        self._is_paused = False
        self._is_stopping = False
        self._busy = BusyClock()

    @property
    def trainers(self) -> Mapping[str, Trainer]:
        """The trainers by behavior name. They belong to the loop's thread; use `submit` to work with one."""
        return MappingProxyType(self._trainers)

    @property
    def is_paused(self) -> bool:
        """Whether trainers take no turns at present."""
        return self._is_paused

    @property
    def busy_seconds(self) -> float:
        """How long the thread has worked (staged, updated, published, saved) and not waited for something to do."""
        return self._busy.busy_seconds

    @property
    def is_finished(self) -> bool:
        """Whether there are trainers and all of them have done what they were asked to do."""
        trainers = dict(self._trainers)
        return bool(trainers) and all(name in self._finished for name in trainers)

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Runs a call in the loop's thread between two turns; the future holds its result, or what it raised."""
        return self._requests.submit(call)

    def pause(self) -> Future[None]:
        """Lets trainers take no turns, once the present one is over."""
        return self.submit(self._pause)

    def resume(self) -> Future[None]:
        """Lets trainers go on."""
        return self.submit(self._resume)

    def stop(self) -> None:
        """Ends the loop once the present turn is over."""
        self._is_stopping = True
        self._behaviors.to_trainer.set()

    def run(self) -> None:
        """Gives turns until `stop`, or until something raises; that is reported and never swallowed in silence."""
        try:
            while not self._is_stopping:
                # Cleared before the look at what there is to do, so that what comes meanwhile sets it again.
                self._behaviors.to_trainer.clear()
                if not self._turn():
                    with self._busy.waiting():
                        self._behaviors.to_trainer.wait(_IDLE_SECONDS)
        except BaseException as error:  # noqa: BLE001 - reported; the learner ends with an exit code
            self._on_failure(error)
        finally:
            self._requests.close()

    def _turn(self) -> bool:
        """Does everything once; returns whether there was anything to do."""
        is_busy = self._requests.run_pending()
        for behavior in self._behaviors.take_new():
            self._add(behavior)
            is_busy = True
        if not self._is_paused:
            if self._before_turn is not None:
                self._before_turn()
            for name, trainer in sorted(self._trainers.items()):  # they were declared in any order
                if self._is_stopping:
                    break
                is_busy = trainer.advance() or is_busy
                self._finish_if_done(name, trainer)
        if self._after_turn is not None:
            self._after_turn()
        return is_busy

    def _add(self, behavior: Behavior) -> None:
        trainer = self._build(behavior)
        trainer.start()
        self._trainers[behavior.name] = trainer
        log.info("trainer_started", behavior=behavior.name, version=trainer.version, step=trainer.get_step)
        self._finish_if_done(behavior.name, trainer, is_new=True)

    def _finish_if_done(self, name: str, trainer: Trainer, *, is_new: bool = False) -> None:
        if name in self._finished or trainer.should_still_train or not trainer.is_training:
            return
        self._finished.add(name)
        behavior = trainer.context.behavior
        trainer.finish()
        self._behaviors.stop_training(behavior)
        trainer.finish()  # what came between the two
        if is_new:
            log.warning(
                "nothing_to_train",
                behavior=name,
                step=trainer.get_step,
                steps_trained=trainer.steps_trained,
                max_steps=trainer.get_max_steps,
                action="this run has reached max_steps: raise it to train on",
            )
            return
        log.info(
            "training_finished",
            behavior=name,
            step=trainer.get_step,
            steps_trained=trainer.steps_trained,
            version=trainer.version,
        )
        if not trainer.version:
            _tell_untrained(trainer)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            for trainer in self._trainers.values():
                trainer.on_paused()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            for trainer in self._trainers.values():
                trainer.on_resumed()


def _tell_untrained(trainer: Trainer) -> None:
    """Says that training ended before its first update, and which settings decide when that comes."""
    hyper = trainer.trainer_settings.hyperparameters
    needed = {key: getattr(hyper, key) for key in hyper.traits.first_update}
    lockstep = trainer.context.service.lockstep
    if lockstep is not None and lockstep.quota_steps is not None:
        needed["quota_steps"] = lockstep.quota_steps
    log.warning(
        "nothing_was_trained",
        behavior=trainer.brain_name,
        step=trainer.get_step,
        max_steps=trainer.get_max_steps,
        **needed,
        action="training ended before its first update, so the model is the one it began with: raise max_steps far "
        f"above {' and '.join(needed) or 'what an update needs'}, or lower {'these' if len(needed) > 1 else 'that'}",
    )
