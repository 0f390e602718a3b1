"""Saves and restores runs: behavior checkpoints, the run state for restarts, and the initial state of trainers.

A run is saved between two turns of a trainer, in the trainers' thread, or after the last turn. Weights, ledger and
session table, which the service sends for each run state, are therefore of the same moment.

Models and run state are written as soon as a behavior's training ends, while the run still waits for actors; the end of
the run writes only the run state again, with the accounting of what arrived since.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import structlog
from rollcast.history import History, digest_of_books
from rollcast.throttle import Throttle

from learner.shared.observe.meters import CheckpointMeters
from learner.shared.runfolder.choice import load_chosen
from learner.shared.runfolder.documents import CheckpointFailed, saving
from learner.shared.runfolder.names import LAST
from learner.shared.runfolder.store import CheckpointStore, RecoverySchedule, SavedRunState
from learner.training.curriculum.lessons import Lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers

log = structlog.get_logger(__name__)

STATUS = "status"
"""Key of the status in the accounting state and in a run state."""
_LOG_SECONDS = 60.0


_Point: TypeAlias = tuple[int, int]
"""Progress of a trainer: version and step."""


def _point(trainer: Trainer) -> _Point:
    return trainer.version, trainer.get_step


class CheckpointKeeper(RunPart):
    """Saves a run and restores it.

    Args:
        store: Writes the files of the run folder.
        parts: Parts with a state.
        cut: Returns the accounting state with everything that trainers have settled, and the status.
        generation: Generation of this start of the learner.
        checkpoint_seconds: Longest time between two run states.
        extra: Further content of a run state.
        metrics: Counts checkpoints.
        on_saved: Called for each written checkpoint: behavior (empty for the run state), step, file.
        on_not_saved: Called with the reason if a checkpoint cannot be written.
        lessons: Lessons of the environment parameters, which are saved before the parts, also to ``training_status.json``.
        resume_checkpoint: Checkpoint from which trainers of a resumed run continue; ``last`` is the run state.
        lockstep: Plays the rounds of a lock-step run, and decides when its run state is written; None for other runs.
        history: Records run states; None without a history.

    Attributes:
        models: Final model of each behavior whose training ended; None without one.
    """

    def __init__(
        self,
        store: CheckpointStore,
        parts: Sequence[RunPart] = (),
        *,
        cut: Callable[[], Mapping[str, Any]],
        generation: int,
        checkpoint_seconds: float,
        extra: Mapping[str, Any],
        metrics: CheckpointMeters,
        on_saved: Callable[[str, int, Path], object] = lambda *_: None,
        on_not_saved: Callable[[str], object] = lambda _: None,
        lessons: Lessons,
        resume_checkpoint: str = LAST,
        lockstep: Lockstep | None = None,
        history: History | None = None,
    ) -> None:
        self.store = store
        self._history = history
        self._resume_checkpoint = resume_checkpoint
        self._lockstep = lockstep
        self._lessons = lessons
        self._metrics = metrics
        self._parts: dict[str, RunPart | Lessons] = {
            "lessons": lessons,
            **{part.name: part for part in parts if part.name},
        }
        self._cut = cut
        self.models: dict[str, Path | None] = {}
        self._kept: dict[str, _Point] = {}  # progress at which models were written
        self._ended_at: dict[str, _Point] = {}  # progress of the run state written when training ended
        self._generation = generation
        self._schedule = RecoverySchedule(checkpoint_seconds)
        self._extra = dict(extra)
        self._on_saved = on_saved
        self._on_not_saved = on_not_saved
        self._first_versions: dict[str, int] = {}
        self._trainer_states: Mapping[str, Any] = {}
        self._throttle = Throttle(_LOG_SECONDS)

    def restore(self, state: SavedRunState) -> None:
        """Continues from a run state; called before the service starts.

        Raises:
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError: The state is not one that was saved
                here; see `learner.shared.runfolder.runfolder.must_fit`.
        """
        if self._history is not None:
            digest = digest_of_books(state.ledger, state.sessions)
            self._history.write("resumed", digest=digest, written_by=state.generation)
        for name, part in self._parts.items():
            part.load_state_dict(state.extra.get(name, {}))
        self._trainer_states = state.trainers

    def restore_lessons(self) -> None:
        """Loads the lessons of ``training_status.json``, which may be newer than the run state or edited by a user.

        Call it at every start: in a new run the file has no lessons. In lock-step only the run state counts, because
        everything after it is repeated.
        """
        if self._lockstep is None:
            self._lessons.set_numbers(self.store.status.lessons(self._lessons.numbers()))
        self._note_lessons()

    def save_lessons(self, trainers: Trainers) -> None:
        """Writes the current lessons; a full disk costs only this file, not the run."""
        self._note_lessons()
        self._manages(self.store.save_status)
        self._manages(lambda: self.save_run_state(trainers))

    def save_changes(self, trainers: Trainers) -> None:
        """Writes the run state after settings have changed; in lock-step they are in that of the next boundary."""
        if self._lockstep is None:
            self._manages(lambda: self.save_run_state(trainers))

    def _note_lessons(self) -> None:
        for name, number in self._lessons.numbers().items():
            self.store.status.set_lesson(name, number)

    def trainer_added(self, trainer: Trainer) -> None:
        """Gives a new trainer its saved state, if any.

        Raises:
            UserError: The state cannot be read or does not fit the trainer.
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
                goes_on_at_step=trainer.get_step,  # less than in the file name: collected, untrained steps are lost
            )
        elif saved is not None:
            trainer.load_state_dict(saved)
            missing = trainer.load_experience(self.store.folder.behavior_place(name))
            if missing and self._lockstep is not None:
                self._lockstep.spoil(f"{name} was resumed without its earlier experience: {missing}")
        else:
            initial = self.store.load_initial(name, trainer.trainer_settings.init_path)
            if initial is not None:
                trainer.load_initial_state(initial.state)
                log.info("initialized", behavior=name, source=initial.behavior, step=initial.step)
        self._first_versions[name] = trainer.version

    def save(self, trainer: Trainer) -> None:
        """Writes a behavior checkpoint; a full disk costs the checkpoint, not the run."""
        self._manages(lambda: self.save_behavior(trainer))

    def save_behavior(self, trainer: Trainer) -> Path:
        """Writes ``<Behavior>-<step>.pt``, the model next to it, and ``training_status.json`` with the present lessons.

        Raises:
            CheckpointFailed: The checkpoint cannot be written.
        """
        began = time.monotonic()
        self._note_lessons()  # a lock-step run that ends before a boundary has no later occasion
        path = self.store.save_behavior(
            trainer.brain_name,
            step=trainer.get_step,
            state=trainer.state_dict(),
            reward=trainer.mean_return_since_update(),
            keep_checkpoints=trainer.trainer_settings.keep_checkpoints,
            export=trainer.export_model,
        )
        if self._lockstep is None:  # in lock-step, experience belongs to a run state
            self._save_experience(trainer)
        self._metrics.note_saved(time.monotonic() - began, is_run_state=False)
        self._on_saved(trainer.brain_name, trainer.get_step, path)
        return path

    def _save_experience(self, trainer: Trainer) -> None:
        with saving(self.store.folder.path):
            trainer.save_experience(self.store.folder.behavior(trainer.brain_name))

    def save_run_state(self, trainers: Trainers) -> Path:
        """Writes the run state.

        Raises:
            CheckpointFailed: The checkpoint cannot be written.
        """
        began = time.monotonic()
        if self._lockstep is not None:
            for trainer in trainers.values():
                self._save_experience(trainer)
        parts = self._cut()
        told = {name: part.state_dict() for name, part in self._parts.items()}
        state = SavedRunState(
            generation=self._generation,
            ledger=parts["ledger"],
            sessions=parts["sessions"],
            behaviors_table=parts["behaviors"],
            trainers={**self._trainer_states, **{name: trainer.state_dict() for name, trainer in trainers.items()}},
            extra={**self._extra, **told, STATUS: parts[STATUS]},
        )
        if self._history is not None:
            versions = {name: trainer.version for name, trainer in trainers.items()}
            self._history.write("run_state", digest=digest_of_books(state.ledger, state.sessions), versions=versions)
        path = self.store.save_run_state(state)
        self._metrics.note_saved(time.monotonic() - began, is_run_state=True)
        self._schedule.saved(updates=self.updates(trainers))
        self._on_saved("", sum(trainer.steps_trained for trainer in trainers.values()), path)
        return path

    def after_turn(self, trainers: Trainers) -> None:
        """Writes the run state if due; a full disk costs the checkpoint, not the run.

        In lock-step no clock decides this, but the rounds.

        Raises:
            UserError: A round of lock-step does not fit the available memory.
        """
        if self._lockstep is not None:
            self._lockstep.play(trainers, self.save_round)
        elif self._schedule.is_due(updates=self.updates(trainers)) and not self._manages(
            lambda: self.save_run_state(trainers)
        ):
            self._schedule.failed()

    def save_round(self, trainers: Trainers) -> None:
        """Writes the run state after a lock-step round; a full disk costs the checkpoint, not the run."""
        self._note_lessons()
        self._manages(lambda: self.save_run_state(trainers))

    def save_all(self, trainers: Trainers) -> Path:
        """Writes a checkpoint of each behavior and the run state; returns the path of the run state.

        In lock-step a run state is written only after certain rounds. At any other time the existing one stays.

        Raises:
            CheckpointFailed: A checkpoint cannot be written.
        """
        for trainer in trainers.values():
            self.save_behavior(trainer)
        return self.save_run_state(trainers) if self._is_at_boundary() else self.store.folder.run_state

    def training_ended(self, trainers: Trainers, ended: Collection[str]) -> None:
        """Writes the models of behaviors whose training ended, and the run state; `finish` retries failures.

        In lock-step, the rounds and `finish` write the run state.
        """
        points = {name: _point(trainer) for name, trainer in trainers.items()}
        if (
            self._lockstep is None
            and points != self._ended_at
            and self._manages(lambda: self.save_run_state(trainers), is_last=True)
        ):
            self._ended_at = points
        for name in ended:
            self._keep_model(trainers[name])

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Writes everything at the end of a run; each failure costs only its own file."""
        if not ending.is_good:
            return False
        is_complete = not self._is_at_boundary() or self._manages(lambda: self.save_run_state(trainers), is_last=True)
        for trainer in trainers.values():
            is_complete &= self._keep_model(trainer)
        return is_complete and None not in self.models.values()

    def _keep_model(self, trainer: Trainer) -> bool:
        """Writes checkpoint and final model of a behavior unless both exist; returns whether both exist now."""
        name, point = trainer.brain_name, _point(trainer)
        model = self.models.get(name)
        if self._kept.get(name) == point and model is not None and model.is_file():
            return True
        self.models[name] = self._repeated_model(trainer)
        if self.models[name] is not None:
            return True

        def copy_model() -> None:
            self.models[name] = self.store.finish_behavior(name)

        is_complete = self._manages(lambda: self.save_behavior(trainer), is_last=True)
        is_complete &= self._manages(copy_model, is_last=True)
        if is_complete:
            self._kept[name] = point
        return is_complete

    def _repeated_model(self, trainer: Trainer) -> Path | None:
        """Returns the final model if it is newer than a resumed lock-step run that has trained nothing; otherwise None.

        The model belongs to a later step than the run state from which the run continued, and is kept.
        """
        name = trainer.brain_name
        if self._lockstep is None or self._resume_checkpoint != LAST or name not in self._trainer_states:
            return None
        steps = [entry.steps for entry in self.store.status.checkpoints(name)]
        model = self.store.folder.final_model(name)
        has_trained = trainer.version != self._first_versions.get(name)
        if has_trained or not model.exists() or max(steps, default=0) <= trainer.get_step:
            return None
        log.info("model_stays", behavior=name, step=steps[-1], note="the resumed run has trained nothing")
        return model

    def _is_at_boundary(self) -> bool:
        """Returns whether a run state may be written now; if not, logs which run state is kept."""
        if self._lockstep is None or self._lockstep.is_boundary:
            return True
        view = self._lockstep.view()
        log.info(
            "run_state_stays",
            round=view.checkpoint_round,
            present_round=view.round,
            note="a restart continues from there and repeats the later rounds",
        )
        return False

    def _manages(self, save: Callable[[], object], *, is_last: bool = False) -> bool:
        """Saves, or reports the failure; logs a disk that stays full at most once a minute, but each last attempt."""
        try:
            save()
        except CheckpointFailed as error:
            self._metrics.note_failed()
            self._on_not_saved(str(error))
            left_out = 0 if is_last else self._throttle.admit(None)
            if left_out is not None:
                repeated = {"left_out": left_out} if left_out else {}
                log.error("checkpoint_failed", error=str(error), **repeated)
            return False
        return True

    def updates(self, trainers: Trainers) -> int:
        """Returns the number of updates in this start of the learner."""
        return sum(trainer.version - self._first_versions.get(name, 0) for name, trainer in trainers.items())
