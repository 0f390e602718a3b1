"""What is saved and when: behavior checkpoints, the run state for restarts, and where a run begins.

Everything here but `CheckpointKeeper.restore` runs in the trainer thread, between two turns: so weights, ledger and
session table are those of one moment.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog
from google.protobuf.message import DecodeError
from rollcast.errors import WireError

from learner.checkpoints.choice import load_chosen
from learner.checkpoints.documents import CheckpointFailed, saving
from learner.checkpoints.names import LAST
from learner.checkpoints.store import CheckpointStore, RecoverySchedule, SavedRunState
from learner.common.exits import ExitCode, UserError
from learner.common.saved_values import reason
from learner.curriculum.lessons import Lessons, no_lessons
from learner.ingest.behaviors import BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.sessions import SessionTable, restore, snapshot
from learner.observe.metrics.learner import CheckpointMetrics
from learner.observe.rates import Throttle
from learner.run.lockstep.barrier import Lockstep
from learner.status.run_status import RunStatus
from learner.trainers.base import Trainer

log = structlog.get_logger(__name__)

_LOG_SECONDS = 60.0
_NO_SENSE = (ArithmeticError, AttributeError, DecodeError, LookupError, RuntimeError, TypeError, ValueError, WireError)
"""What a run state can provoke that is a readable file, and was not written by `CheckpointKeeper`."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What the end of a run left in its folder.

    Attributes:
        models: the final model of each behavior, None where there is none.
        is_complete: everything was written; else the log says what was not.
    """

    models: Mapping[str, Path | None]
    is_complete: bool


class CheckpointKeeper:
    """Saves a run and restores it.

    Args:
        store: the run folder's files.
        behaviors: the behaviors of the run.
        sessions: the actors.
        ledger: the books.
        run_status: the clocks, which go on after a restart; also told of failures.
        generation: of this start of the learner.
        checkpoint_seconds: the longest time between two run states.
        extra: what else a run state holds.
        metrics: where checkpoints are counted.
        on_saved: told of each checkpoint on the disk: behavior (empty for the run state), step, file.
        on_not_saved: told why one is not.
        lessons: what the environments are set to.
        resume_checkpoint: what trainers go on from where the run is resumed; ``last`` is the run state.
        lockstep: what decides in lock-step when a run state may be written; None for runs that are not.
    """

    def __init__(
        self,
        store: CheckpointStore,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        run_status: RunStatus,
        *,
        generation: int,
        checkpoint_seconds: float,
        extra: Mapping[str, Any],
        metrics: CheckpointMetrics,
        on_saved: Callable[[str, int, Path], None] | None = None,
        on_not_saved: Callable[[str], None] | None = None,
        lessons: Lessons | None = None,
        resume_checkpoint: str = LAST,
        lockstep: Lockstep | None = None,
    ) -> None:
        self.store = store
        self._resume_checkpoint = resume_checkpoint
        self._lockstep = lockstep
        self._lessons = lessons or no_lessons()
        self._metrics = metrics
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._run_status = run_status
        self._generation = generation
        self._schedule = RecoverySchedule(checkpoint_seconds)
        self._extra = dict(extra)
        self._on_saved = on_saved
        self._on_not_saved = on_not_saved
        self._first_versions: dict[str, int] = {}
        self._trainer_states: Mapping[str, Any] = {}
        self._throttle = Throttle(_LOG_SECONDS)

    def restore(self, state: SavedRunState) -> None:
        """Goes on from a run state, before the service starts.

        Raises:
            UserError: it does not fit the run file, or is damaged.
        """
        try:
            restore(
                {"behaviors": state.behaviors_table, "ledger": state.ledger, "sessions": state.sessions},
                self._behaviors,
                self._sessions,
                self._ledger,
            )
            self._run_status.load_milestones(state.extra.get("milestones", {}))
            self._run_status.load_news(state.extra.get("news", {}))
            self._run_status.history.load_state_dict(state.extra.get("history", {}))
            self._lessons.load_state_dict(state.extra.get("lessons", {}))
            if self._lockstep is not None:
                self._lockstep.load_state_dict(state.extra.get("lockstep", {}))
            self._require_trainers(state.trainers)
        except _NO_SENSE as error:
            raise UserError(
                ExitCode.BAD_CHECKPOINT,
                f"{self.store.folder.run_state} does not fit together ({reason(error)}); put back another "
                "copy of it, or start anew with --force",
            ) from error
        self._trainer_states = state.trainers

    def _require_trainers(self, trainers: Mapping[str, Any]) -> None:
        """Looks whether all that was trained is there: a trainer without its state would begin again in silence."""
        for name in self._ledger.behaviors():
            trained = self._ledger.books(name).trained
            missing = (
                "trainer" if name not in trainers else "declaration" if self._behaviors.by_name(name) is None else ""
            )
            if trained and missing:
                raise ValueError(f"{trained} steps of {name} were trained, and its {missing} is missing")

    def restore_lessons(self) -> None:
        """Takes the lessons of ``training_status.json``: it may be newer than the run state, or say what a user wrote.

        Call it in every start: what a new run has of that file is empty. In lock-step the run state alone counts, as
        all that came after it is repeated.
        """
        if self._lockstep is None:
            kept = {name: self.store.status.lesson(name) for name in self._lessons.numbers()}
            self._lessons.set_numbers({name: number for name, number in kept.items() if number is not None})
        self._note_lessons()

    def save_lessons(self, trainers: Mapping[str, Trainer]) -> None:
        """Writes in which lesson everything is; a full disk costs what cannot be written, not the run."""
        self._note_lessons()
        for save in (self.store.save_status, lambda: self.save_run_state(trainers)):
            try:
                save()
            except CheckpointFailed as error:
                self._note_failure(error)

    def _note_lessons(self) -> None:
        for name, number in self._lessons.numbers().items():
            self.store.status.set_lesson(name, number)

    def begin(self, trainer: Trainer) -> None:
        """Gives a new trainer the state it starts from, if there is one.

        Raises:
            UserError: the state cannot be read or does not fit the trainer.
        """
        name = trainer.brain_name
        saved = self._trainer_states.get(name)
        if saved is not None and self._resume_checkpoint != LAST:
            chosen = load_chosen(self.store.folder.path, name, self._resume_checkpoint, self.store.status)
            trainer.load_state_dict(chosen.state)
            if self._lockstep is not None:
                self._lockstep.spoil(f"the run was resumed from checkpoint {self._resume_checkpoint} of {name}")
            log.info(
                "resumed_from",
                behavior=name,
                checkpoint=self._resume_checkpoint,
                step=chosen.step,
                steps_trained=trainer.steps_trained,
                goes_on_at_step=trainer.get_step,  # less than in its name: what was collected and not trained is gone
            )
        elif saved is not None:
            trainer.load_state_dict(saved)
            missing = trainer.load_experience(self.store.folder.behavior_place(name))
            if missing and self._lockstep is not None:
                self._lockstep.spoil(f"{name} was resumed with other experience than it had: {missing}")
        else:
            initial = self.store.load_initial(name, trainer.trainer_settings.init_path)
            if initial is not None:
                trainer.load_initial_state(initial.state)
                log.info("initialized", behavior=name, source=initial.behavior, step=initial.step)
        self._first_versions[name] = trainer.version

    def save(self, trainer: Trainer) -> None:
        """Writes a behavior checkpoint; a full disk costs the checkpoint, not the run."""
        try:
            self.save_behavior(trainer)
        except CheckpointFailed as error:
            self._note_failure(error)

    def save_behavior(self, trainer: Trainer) -> Path:
        """Writes ``<Behavior>-<step>.pt`` and the model beside it.

        Raises:
            CheckpointFailed: it cannot be written.
        """
        began = time.monotonic()
        path = self.store.save_behavior(
            trainer.brain_name,
            step=trainer.get_step,
            state=trainer.state_dict(),
            reward=trainer.mean_return_since_update(),
            keep_checkpoints=trainer.trainer_settings.keep_checkpoints,
            export=trainer.export_model,
        )
        if self._lockstep is None:  # else it belongs to a run state
            self._save_experience(trainer)
        self._metrics.note_saved(time.monotonic() - began, is_run_state=False)
        self._tell_saved(trainer.brain_name, trainer.get_step, path)
        return path

    def _save_experience(self, trainer: Trainer) -> None:
        with saving(self.store.folder.path):
            trainer.save_experience(self.store.folder.behavior(trainer.brain_name))

    def save_run_state(self, trainers: Mapping[str, Trainer]) -> Path:
        """Writes the run state.

        Raises:
            CheckpointFailed: it cannot be written.
        """
        began = time.monotonic()
        if self._lockstep is not None:
            for trainer in trainers.values():
                self._save_experience(trainer)
        with self._ledger.lock:
            parts = snapshot(self._behaviors, self._sessions, self._ledger)
            told = {
                "milestones": self._run_status.milestone_states(),
                "news": self._run_status.news_states(),
                "history": self._run_status.history.state_dict(),
                "lessons": self._lessons.state_dict(),
            }
        if self._lockstep is not None:
            told["lockstep"] = self._lockstep.state_dict()
        state = SavedRunState(
            generation=self._generation,
            ledger=parts["ledger"],
            sessions=parts["sessions"],
            behaviors_table=parts["behaviors"],
            trainers={**self._trainer_states, **{name: trainer.state_dict() for name, trainer in trainers.items()}},
            extra={**self._extra, **told},
        )
        path = self.store.save_run_state(state)
        self._metrics.note_saved(time.monotonic() - began, is_run_state=True)
        self._schedule.saved(updates=self.updates(trainers))
        self._tell_saved("", sum(trainer.steps_trained for trainer in trainers.values()), path)
        return path

    def save_if_due(self, trainers: Mapping[str, Trainer]) -> None:
        """Writes the run state if it is time; a full disk costs the checkpoint, not the run.

        In lock-step it is never a clock that decides; see `save_round`.
        """
        if self._lockstep is not None or not self._schedule.is_due(updates=self.updates(trainers)):
            return
        try:
            self.save_run_state(trainers)
        except CheckpointFailed as error:
            self._schedule.failed()
            self._note_failure(error)

    def save_round(self, trainers: Mapping[str, Trainer]) -> None:
        """Writes the run state after a round of lock-step; a full disk costs the checkpoint, not the run."""
        self._note_lessons()
        try:
            self.save_run_state(trainers)
        except CheckpointFailed as error:
            self._note_failure(error)

    def save_all(self, trainers: Mapping[str, Trainer]) -> Path:
        """Writes a checkpoint of each behavior and the run state, and returns the latter's path.

        In lock-step a run state is of the end of certain rounds. At any other time the one there is stays.

        Raises:
            CheckpointFailed: one cannot be written.
        """
        for trainer in trainers.values():
            self.save_behavior(trainer)
        return self.save_run_state(trainers) if self._is_at_boundary() else self.store.folder.run_state

    def finish(self, trainers: Mapping[str, Trainer]) -> Kept:
        """Writes everything at the end of a run; what cannot be written costs nothing else."""
        is_complete = not self._is_at_boundary() or self._manages(lambda: self.save_run_state(trainers))
        models: dict[str, Path | None] = {}
        for name, trainer in trainers.items():
            models[name] = self._repeated_model(trainer)
            if models[name] is not None:
                continue
            is_complete &= self._manages(lambda trainer=trainer: self.save_behavior(trainer))  # type: ignore[misc]
            is_complete &= self._manages(
                lambda name=name: models.update({name: self.store.finish_behavior(name)})  # type: ignore[misc]
            )
        return Kept(models, is_complete and None not in models.values())

    def _repeated_model(self, trainer: Trainer) -> Path | None:
        """Returns the final model of a run in lock-step that ends before it repeated anything; None if there is none.

        It is that of a later step than the run state it went on from, and stays.
        """
        name = trainer.brain_name
        if self._lockstep is None or self._resume_checkpoint != LAST or name not in self._trainer_states:
            return None
        steps = [entry.steps for entry in self.store.status.checkpoints(name)]
        model = self.store.folder.final_model(name)
        has_trained = trainer.version != self._first_versions.get(name)
        if has_trained or not model.exists() or max(steps, default=0) <= trainer.get_step:
            return None
        log.info("model_stays", behavior=name, step=steps[-1], note="nothing was trained since the run went on")
        return model

    def _is_at_boundary(self) -> bool:
        """Whether a run state may be written now; says which one stays if not."""
        if self._lockstep is None or self._lockstep.is_boundary:
            return True
        view = self._lockstep.view()
        log.info(
            "run_state_stays",
            round=view.checkpoint_round,
            present_round=view.round,
            note="a restart goes on from there, and repeats in lock-step what came after",
        )
        return False

    def _manages(self, save: Callable[[], object]) -> bool:
        try:
            save()
        except CheckpointFailed as error:
            self._note_failure(error, is_last=True)
            return False
        return True

    def _note_failure(self, error: CheckpointFailed, *, is_last: bool = False) -> None:
        """Shows a failure; a disk that stays full is logged once a minute."""
        self._metrics.note_failed()
        self._run_status.last_error = str(error)
        if self._on_not_saved is not None:
            self._on_not_saved(str(error))
        left_out = 0 if is_last else self._throttle.admit(None)
        if left_out is not None:
            repeated = {"left_out": left_out} if left_out else {}
            log.error("checkpoint_failed", error=str(error), **repeated)

    def _tell_saved(self, behavior: str, step: int, path: Path) -> None:
        if self._on_saved is not None:
            self._on_saved(behavior, step, path)

    def updates(self, trainers: Mapping[str, Trainer]) -> int:
        """Returns how many updates were made in this start of the learner."""
        return sum(trainer.version - self._first_versions.get(name, 0) for name, trainer in trainers.items())
