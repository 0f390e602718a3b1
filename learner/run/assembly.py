"""Puts a learner together: all its parts, each made of those before it."""

from __future__ import annotations

import zlib
from pathlib import Path

import structlog

from learner.checkpoints.runfolder import RunFolder
from learner.checkpoints.store import CheckpointStore, SavedRunState
from learner.common.exits import UserError
from learner.common.plugins import in_one_line
from learner.evaluation.during_training import EvaluationManager
from learner.ingest.behaviors import Behavior
from learner.observe.stats import StatsReporter
from learner.observe.tensorboard import HYPERPARAMETERS, settings_table
from learner.observe.view import RunState
from learner.run.base import BaseRun
from learner.run.checkpointing import CheckpointKeeper
from learner.run.lockstep.barrier import Lockstep
from learner.run.setup import (
    SEED_PART,
    Configuration,
    choose_seed,
)
from learner.run.turns import BetweenTurns, CurriculumController
from learner.settings.load import LoadedRun
from learner.status.record import RunRecord
from learner.status.writers import close_writers, writers_of
from learner.trainers import registry
from learner.trainers.base import Trainer
from learner.trainers.loop import TrainerLoop

log = structlog.get_logger(__name__)


class Assembly(BaseRun):
    """The parts of one start of a learner in its run folder.

    Args:
        loaded: the settings and their sources.
        folder: the run folder, open.

    Raises:
        UserError: the state to resume from cannot be read or does not fit.

    Attributes:
        folder: the run folder.
        record: what is kept of the run.
        lockstep: its barrier, if the run has one.
        keeper, evaluations: checkpoints, evaluations.
        curriculum: begins lessons.
        control: what operators ask for.
    """

    def __init__(self, loaded: LoadedRun, folder: RunFolder) -> None:
        checkpoints = CheckpointStore(folder)
        state = checkpoints.load_run_state() if folder.resuming else None
        super().__init__(
            loaded.options,
            run_id=folder.run_id,
            generation=folder.next_generation(at_least=0 if state is None else state.generation),
            seed=choose_seed(loaded.options, {} if state is None else state.extra),
        )
        self.folder = folder
        configuration = Configuration(loaded, folder, self.seed)
        self.record = RunRecord.of(
            loaded, folder, generation=self.generation, seed=self.seed, view=self.view, live=self.sessions.live
        )
        self.lockstep = self._make_lockstep()
        self.keeper = self._make_keeper(checkpoints, state)
        if state is None:
            configuration.keep()
        self.evaluations = self._make_evaluations(checkpoints)
        self.curriculum = CurriculumController(self.lessons, self.keeper, self.commands.send, self.lockstep)
        self._writers = tuple(writers_of(loaded, folder))
        self.metrics.declare_stats_writers(self._writers)
        self.loop = self._make_loop(configuration)
        self.control = self.make_control()

    def active_state(self) -> RunState:
        """Returns TRAINING once a behavior was declared."""
        return RunState.TRAINING if self.loop.trainers else RunState.WAITING

    def _make_lockstep(self) -> Lockstep | None:
        if self.service.lockstep is None:
            return None
        lockstep = Lockstep(
            self.service.lockstep,
            self.behaviors,
            self.sessions,
            self.ledger,
            self.lessons,
            send=self.commands.send,
            on_spoiled=self.record.note_spoiled,
        )
        self.run_status.lockstep = lockstep.view
        return lockstep

    def _make_keeper(self, checkpoints: CheckpointStore, state: SavedRunState | None) -> CheckpointKeeper:
        """Makes what saves the run, and lets it go on from a saved state.

        Raises:
            UserError: the state does not fit.
        """
        keeper = CheckpointKeeper(
            checkpoints,
            self.behaviors,
            self.sessions,
            self.ledger,
            self.run_status,
            generation=self.generation,
            checkpoint_seconds=self.service.checkpoint_seconds,
            extra={SEED_PART: {"run": self.seed}},
            on_saved=self.record.note_saved,
            on_not_saved=self.record.note_not_saved,
            metrics=self.metrics.checkpoints,
            lessons=self.lessons,
            resume_checkpoint=self.service.resume_checkpoint,
            lockstep=self.lockstep,
        )
        if state is not None:
            keeper.restore(state)
        keeper.restore_lessons()
        return keeper

    def _make_evaluations(self, checkpoints: CheckpointStore) -> EvaluationManager:
        return EvaluationManager(
            self.service,
            checkpoints,
            self.sessions,
            self.store,
            self.commands.send,
            lessons=self.lessons,
            metrics=self.metrics,
            record=self.record,
            run_status=self.run_status,
        )

    def build_trainer(self, behavior: Behavior) -> Trainer:
        """Makes the trainer of a behavior, with the state it starts from; in the trainer thread.

        Raises:
            UserError: its settings, or the saved state, do not fit.
        """
        stats = StatsReporter(behavior.name, self._writers, on_failure=self.metrics.stats_writer_failed)
        # In lock-step the seed follows from the name, as behaviors are declared in any order.
        place = behavior.index if self.lockstep is None else zlib.crc32(behavior.name.encode())
        context = self.trainer_context(
            behavior,
            stats,
            self.evaluations,
            seed=self.seed + place,
            is_deterministic=behavior.settings.network_settings.deterministic,
            saver=self.keeper,
        )
        trainer = registry.build(context)
        self.keeper.begin(trainer)
        self.evaluations.begin(trainer)
        if self.folder.resuming and trainer.get_step:
            stats.restart(trainer.get_step)
        stats.write_text(HYPERPARAMETERS, settings_table(behavior.settings.model_dump(mode="json")), trainer.get_step)
        return trainer

    def close_statistics(self) -> None:
        """Writes the last statistics and closes the files."""
        for trainer in self.loop.trainers.values():
            trainer.stats_reporter.write_stats(trainer.get_step)
        close_writers(self._writers)

    def _make_loop(self, configuration: Configuration) -> TrainerLoop:
        turns = BetweenTurns(
            self.curriculum,
            self.run_status,
            self.record,
            self.keeper,
            self.stopping,
            evaluations=self.evaluations,
            configuration=configuration,
            lockstep=self.lockstep,
        )
        return TrainerLoop(
            self.behaviors,
            self.build_trainer,
            on_failure=self._trainer_failed,
            before_turn=turns.before,
            after_turn=lambda: turns.after(self.loop),
        )

    def save(self) -> Path:
        """Writes a checkpoint of each behavior and the run state."""
        return self.keeper.save_all(self.loop.trainers)

    def _trainer_failed(self, error: BaseException) -> None:
        """In the trainer thread, as the last thing it does."""
        self.run_status.last_error = in_one_line(error)
        if not isinstance(error, UserError):
            log.error("trainer_failed", error=in_one_line(error), exc_info=error)
        elif self.service.log_format == "json":  # people read it once: the command prints it as its last line
            log.error("trainer_failed", error=error.message)
        self.stopping.ask_anywhere("trainer_failed", final=False, error=error)
