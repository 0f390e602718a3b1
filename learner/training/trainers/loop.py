"""The loop of the one thread in which all trainers of a learner take turns."""

from __future__ import annotations

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import structlog
from rollcast.errors import CheckpointFailed as SavingRefused
from rollcast.errors import NothingToSave, SettingRefused
from rollcast.history import History
from rollcast.text import in_one_line

from learner.link.channel import Link
from learner.link.control import Answer, Request, RequestKind, Seen, SettingChange, StopTurns
from learner.link.to_front import Cut, Done
from learner.link.to_trainers import Actors, Books, Declared, Experience, QueueFull, ToTrainers
from learner.link.turns import TurnKind
from learner.shared.descriptors import with_descriptors
from learner.shared.exits import UserError
from learner.shared.runfolder.documents import CheckpointFailed
from learner.training.networks.visual import log_fitting_towers
from learner.training.trainers.base import Trainer
from learner.training.trainers.experience_history import ExperienceHistory
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport
from learner.training.trainers.parts import RunPart
from learner.training.trainers.reporting import Reporting, Sources
from learner.training.trainers.roster import Roster

log = structlog.get_logger(__name__)


class BusyClock:
    """Measures the waits of one thread; all other time is work, including the current turn.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begun = clock()
        # Waited seconds and the start of the current wait. Replaced as a whole, so that readers need no lock.
        self._waits: tuple[float, float | None] = (0.0, None)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Counts the block as a wait."""
        waited_seconds, _ = self._waits
        begun = self._clock()
        self._waits = waited_seconds, begun
        try:
            yield
        finally:
            self._waits = waited_seconds + self._clock() - begun, None

    @property
    def busy_seconds(self) -> float:
        """Seconds since creation, excluding waits; from any thread. May fall slightly between two calls."""
        waited_seconds, waits_since = self._waits
        now = self._clock()
        if waits_since is not None:
            waited_seconds += max(0.0, now - waits_since)
        return max(0.0, now - self._begun - waited_seconds)


_IDLE_SECONDS = 0.5
"""Longest wait before everything is checked. Events end it early, so this only limits the harm of a missed event."""
_CUT_SECONDS = 5.0
"""Seconds that a checkpoint waits for the accounting state."""

MakeQueue = Callable[[Declared, OutcomeReport], ExperienceQueue]


def ordinary_queue(declared: Declared, outcomes: OutcomeReport) -> ExperienceQueue:
    """Creates the queue of a behavior whose trainer takes experience as it arrives."""
    del declared
    return ExperienceQueue(outcomes)


class TrainerLoop:
    """Builds a trainer for each declared behavior and gives each its turns.

    Run `run` in a thread. All other methods may be called from any thread, unless documented otherwise.

    Args:
        link: Link to the service, which reports what was declared and received.
        build: Builds the trainer of a behavior with its queue.
        parts: Called in order with each new trainer, and before and after each turn; they may be added until `run`.
        save: Writes a checkpoint of everything and returns its path; None for a run that saves nothing.
        change: Changes settings as a request asks, and returns what has changed; None for a run that does not train.
        on_failure: Called in the loop's thread with the error that ended the loop.
        roster: Receives the connected actors.
        reporting: Reports the trainers' state to the service; by default without further sources.
        history: Records what happens to each chunk; None without a history.

    Attributes:
        make_queue: Creates the queue of a behavior; lock-step has a different one.
    """

    def __init__(
        self,
        link: Link,
        build: Callable[[Declared, ExperienceQueue], Trainer],
        parts: Sequence[RunPart] = (),
        *,
        save: Callable[[], Path] | None = None,
        change: Callable[[Request], tuple[SettingChange, ...]] | None = None,
        on_failure: Callable[[BaseException], None],
        roster: Roster | None = None,
        reporting: Reporting | None = None,
        history: History | None = None,
    ) -> None:
        self._history = history
        self._link = link
        self._woken = threading.Event()
        self._build = build
        self.make_queue: MakeQueue = ordinary_queue
        self._roster = roster or Roster()
        self._on_failure = on_failure
        self._reporting = reporting or Reporting(link.to_front.send, Sources())
        self._parts = parts
        self._trainers: dict[str, Trainer] = {}
        self._queues: dict[int, ExperienceQueue] = {}
        self._names: dict[int, str] = {}
        self._finished: set[str] = set()
        self._unread: deque[ToTrainers] = deque()  # that arrived while `cut` waited
        self._cuts = 0
        self._save = save
        self._change = change
        self._changes: list[Request] = []
        self._saves: list[int] = []  # request ids
        self._is_save_asked = False
        self._is_paused = False
        self._is_stopping = False
        self._is_unreported = False
        self._busy = BusyClock()
        link.to_trainers.connect(self._woken.set)
        link.to_trainers.divert(StopTurns, lambda _: self.stop())
        link.to_trainers.divert(Seen, self._roster.note_seen)

    @property
    def trainers(self) -> Mapping[str, Trainer]:
        """Trainers by behavior name. They belong to the loop's thread."""
        return MappingProxyType(self._trainers)

    @property
    def is_paused(self) -> bool:
        """Returns whether the run is paused, so that trainers take no turns."""
        return self._is_paused

    @property
    def is_stopping(self) -> bool:
        """Returns whether no more turns follow."""
        return self._is_stopping

    @property
    def busy_seconds(self) -> float:
        """Seconds the thread spent working (staging, updating, publishing, saving), excluding waits."""
        return self._busy.busy_seconds

    def request_save(self) -> None:
        """Requests a checkpoint after the current update and returns at once; from any thread. Logs the outcome."""
        self._is_save_asked = True
        self._woken.set()

    def stop(self) -> None:
        """Ends the loop after the current turn."""
        self._is_stopping = True
        self._woken.set()

    def cut(self) -> Mapping[str, Any]:
        """Returns the accounting state with everything that trainers have settled, for a checkpoint.

        Call it in the loop's thread, between two turns or after the last. Steps that were sent and not taken count as
        queued. A report is sent first, because the service keeps the newest report with this state.

        Returns:
            States of behaviors, ledger and sessions at one moment.

        Raises:
            CheckpointFailed: The service did not answer in time.
        """
        self.report()
        self._cuts += 1
        self._link.to_front.send(Cut(self._cuts))
        end = time.monotonic() + _CUT_SECONDS
        while True:
            is_late = time.monotonic() >= end  # before reading: a suspended process still finds its answer
            self._woken.clear()
            self._unread.extend(self._link.to_trainers.receive())
            for message in self._unread:
                if isinstance(message, Books) and message.number == self._cuts:
                    self._woken.set()  # for messages that arrived meanwhile
                    return message.state
            if is_late:
                raise CheckpointFailed(f"the service did not answer for {_CUT_SECONDS:g} seconds")
            self._woken.wait(max(0.0, end - time.monotonic()))

    def report(self) -> None:
        """Reports the trainers' state to the service. Call it in the loop's thread, or while the loop does not run."""
        self._reporting.send(self.trainers, busy_seconds=self.busy_seconds, is_paused=self._is_paused)

    def run(self) -> None:
        """Gives the trainers turns until `stop` or an error; an error is always reported."""
        try:
            while not self._is_stopping:
                # Cleared before looking for work, so that work that arrives meanwhile sets it again.
                self._woken.clear()
                if not self._turn():
                    self._wait()
            self._receive()  # settles steps still on their way to finished behaviors
            self._tell_ended(tuple(self._trainers))
            self.report()
        except BaseException as error:  # noqa: BLE001 - reported; the learner ends with an exit code
            self._on_failure(error)

    def _wait(self) -> None:
        """Waits for work, at most until the next report may be sent."""
        due_in_seconds = self._reporting.due_in_seconds if self._is_unreported else _IDLE_SECONDS
        with self._busy.waiting():
            self._woken.wait(min(_IDLE_SECONDS, max(0.0, due_in_seconds)))

    def _turn(self) -> bool:
        """Does all work once; returns whether there was any."""
        is_busy = self._receive()
        is_busy = self._change_as_asked() or is_busy
        is_busy = self._save_as_asked() or is_busy
        if not self._is_paused:
            for part in self._parts:
                part.before_turn(self.trainers)
            for name, trainer in sorted(self._trainers.items()):  # behaviors are declared in any order
                if self._is_stopping:
                    break
                is_busy = trainer.advance() or is_busy
                self._finish_if_done(name, trainer)
        for part in self._parts:
            part.after_turn(self.trainers)
        self._is_unreported = self._reporting.due_in_seconds > 0
        if not self._is_unreported:
            self.report()
        return is_busy

    def _receive(self) -> bool:
        """Handles the service's messages in order; returns whether a behavior was declared."""
        is_busy = False
        messages = [*self._unread, *self._link.to_trainers.receive()]
        self._unread.clear()
        for message in messages:
            match message:
                case Experience():
                    self._put(message)
                case Declared():
                    self._add(message)
                    is_busy = True
                case QueueFull():
                    self._queues[message.behavior].note_full(message)
                case Actors():
                    self._roster.newest = message
                case Request():
                    self._note_request(message)
                    is_busy = True
                case Books():
                    pass  # answer to a cut that has timed out
        for trainer in self._trainers.values():
            if trainer.queue.is_closed:
                trainer.settle()
        return is_busy

    def _put(self, item: Experience) -> None:
        name = self._names[item.behavior]
        if item.chunk.rows:
            self._roster.note_sender(name, item.source)
        for part in self._parts:
            part.received(name, item)
        self._queues[item.behavior].put(item)

    def _note_request(self, request: Request) -> None:
        """Handles a request of the service; all pending requests share one checkpoint."""
        match request.kind:
            case RequestKind.PAUSE:
                self._pause()
            case RequestKind.RESUME:
                self._resume()
            case RequestKind.SAVE:
                self._saves.append(request.number)
                return
            case RequestKind.SET | RequestKind.UNDO:
                self._changes.append(request)
                return
        self._link.to_front.send(Answer(request.number))

    def _change_as_asked(self) -> bool:
        """Changes settings as requested, in order, and answers; returns whether there was a request."""
        requests, self._changes = self._changes, []
        for request in requests:
            try:
                if self._change is None:
                    raise SettingRefused("nothing can be changed, because this run does not train")
                answer = Answer(request.number, changes=self._change(request))
                self.report()  # first, so that the caller finds the new values in the status
            except SettingRefused as error:
                answer = Answer(request.number, reason=error.reason, message=error.message)
            self._link.to_front.send(answer)
        return bool(requests)

    def _save_as_asked(self) -> bool:
        """Saves a checkpoint if one was requested and answers all requests; returns whether there was a request."""
        if not self._saves and not self._is_save_asked:
            return False
        numbers, self._saves, self._is_save_asked = self._saves, [], False
        path = reason = message = ""
        fatal: UserError | None = None
        try:
            path = str(self._save_now())
        except UserError as error:  # another learner has taken the run folder over
            fatal, reason, message = error, SavingRefused.default_reason, error.message
        except NothingToSave as error:
            reason, message = error.reason, error.message
        except CheckpointFailed as error:
            reason, message = SavingRefused.default_reason, str(error)
        except Exception as error:  # part of a state cannot be saved: report it to the requester and continue training
            log.error("save_failed", error=in_one_line(error), exc_info=error)
            reason, message = SavingRefused.default_reason, in_one_line(error)
        if reason and not numbers:
            log.error("checkpoint_failed", error=message)
        for number in numbers:
            self._link.to_front.send(Answer(number, path, reason, message))
        if fatal is not None:
            raise fatal
        return True

    def _save_now(self) -> Path:
        if self._save is None:
            raise NothingToSave("there is nothing to save, because this run does not train")
        if not self._trainers:
            raise NothingToSave(
                "there is nothing to save, because no actor has declared a behavior yet: start an actor"
            )
        return self._save()

    def _add(self, declared: Declared) -> None:
        history = None if self._history is None else ExperienceHistory(self._history, declared.name)
        queue = self.make_queue(declared, OutcomeReport(declared.index, self._link.to_front.send, history))
        self._queues[declared.index] = queue
        self._names[declared.index] = declared.name
        if self._is_stopping:
            return  # the trainer would never get a turn, and creating it may fail
        trainer = self._build(declared, queue)
        for part in self._parts:
            with_descriptors(functools.partial(part.trainer_added, trainer), until=lambda: self._is_stopping)
        trainer.share_state()
        trainer.start()
        self._trainers[declared.name] = trainer
        log_fitting_towers(declared.name, declared.spec.observations, declared.settings.network_settings)
        started = "trainer_started" if trainer.is_training else "policy_loaded"
        log.info(started, behavior=declared.name, version=trainer.version, step=trainer.get_step)
        self._finish_if_done(declared.name, trainer, is_new=True)
        self.report()

    def _finish_if_done(self, name: str, trainer: Trainer, *, is_new: bool = False) -> None:
        if name in self._finished or trainer.should_still_train or not trainer.is_training:
            return
        self._finished.add(name)
        trainer.tell(TurnKind.FINISH)
        trainer.finish()
        trainer.queue.close()
        trainer.settle()
        if not is_new:
            self._tell_ended((name,))  # first, because the service may end the run after `Done`
        self._link.to_front.send(Done(trainer.context.behavior.index))
        if is_new:
            log.warning(
                "nothing_to_train",
                behavior=name,
                step=trainer.get_step,
                steps_trained=trainer.steps_trained,
                max_steps=trainer.get_max_steps,
                action="this run is finished: raise its max_steps to continue training, in the run file or by --set "
                f"behaviors.{name}.max_steps={2 * trainer.get_max_steps}, or start over with --force",
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

    def _tell_ended(self, names: Collection[str]) -> None:
        for part in self._parts:
            part.training_ended(self.trainers, names)

    def _pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            for trainer in self._trainers.values():
                trainer.on_paused()
            self.report()

    def _resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            for trainer in self._trainers.values():
                trainer.on_resumed()
            self.report()


def _tell_untrained(trainer: Trainer) -> None:
    """Logs that training ended before its first update, and the settings that decide when that happens."""
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
        action="training ended before its first update, so the model is unchanged: raise max_steps far "
        f"above {' and '.join(needed) or 'what an update needs'}, or lower "
        f"{'these settings' if len(needed) > 1 else 'that setting'}",
    )
