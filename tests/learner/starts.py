"""Starts of a learner without its service, in a run folder: what the tests of its top-level modules are made of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from learner.checkpoints.runfolder import RunFolder, open_run_folder
from learner.checkpoints.store import CheckpointStore, SavedRunState
from learner.curriculum.lessons import Lessons
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import StatsReporter
from learner.run.checkpointing import CheckpointKeeper
from learner.run.turns import trainer_stats
from learner.settings.options import RunOptions
from learner.status.run_status import RunStatus
from learner.trainers.base import TrainerContext
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.ingest.parts import NAME, Parts
from tests.learner.trainers.in_process import Bench, CartPoleActor, Published

SETTINGS: dict[str, Any] = {
    "hyperparameters": {"batch_size": 64, "buffer_size": 256, "num_epoch": 1},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 32,
}
OPTIONS = RunOptions.model_validate({"behaviors": {NAME: SETTINGS}})


class Start:
    """One start of a learner without its service: the parts of which a checkpoint is made."""

    def __init__(
        self, folder: RunFolder, generation: int, seconds: float = 1e-9, lessons: Lessons | None = None
    ) -> None:
        self.parts = Parts(OPTIONS, generation=generation)
        parts, service = self.parts, OPTIONS.rollcast
        self.run_status = RunStatus(
            parts.behaviors, parts.sessions, parts.ledger, service, run_id="run", generation=generation, lessons=lessons
        )
        self.store = CheckpointStore(folder)
        self._published = Published()
        self.metrics = LearnerMetrics()
        self.keeper = CheckpointKeeper(
            self.store,
            parts.behaviors,
            parts.sessions,
            parts.ledger,
            self.run_status,
            generation=generation,
            checkpoint_seconds=seconds,
            extra={"seed": {"run": 5}},
            metrics=self.metrics.checkpoints,
            lessons=lessons,
        )

    def join(self) -> PPOTrainer:
        """Lets an actor declare the behavior, and makes its trainer."""
        self.parts.declared(self.parts.open().session)
        return self.trainer()

    def trainer(self) -> PPOTrainer:
        """Makes the trainer of the behavior, and lets it begin."""
        behavior, parts = self.parts.behaviors.all()[0], self.parts
        bench = Bench(parts.behaviors, behavior, parts.ledger, StatsReporter(NAME))
        context: TrainerContext = bench.context(open_publisher=self._published.open, saver=self.keeper)
        trainer = PPOTrainer(context)
        self.keeper.begin(trainer)
        trainer.start()
        return trainer

    def train(self, trainer: PPOTrainer, updates: int) -> None:
        """Takes steps until the trainer has made so many updates."""
        behavior, parts = self.parts.behaviors.all()[0], self.parts
        bench = Bench(parts.behaviors, behavior, parts.ledger, trainer.stats_reporter, self._published)
        actor = CartPoleActor(bench, environments=2)
        end = trainer.version + updates
        while trainer.version < end:
            actor.run(64)
            trainer.advance()
        self.run_status.note_trainer(behavior, trainer_stats(trainer))


@contextmanager
def opened(results: Path, *, resume: bool = False) -> Iterator[RunFolder]:
    """The run folder, locked for the time of the block."""
    with open_run_folder(results, "run", resume=resume) as folder:
        yield folder


@contextmanager
def begun(
    results: Path, updates: int = 0, *, lessons: Lessons | None = None
) -> Iterator[tuple[RunFolder, Start, PPOTrainer]]:
    """Starts a run in a locked folder, lets an actor join, and trains so many updates, for the time of the block."""
    with opened(results) as folder:
        start = Start(folder, 1, lessons=lessons)
        trainer = start.join()
        if updates:
            start.train(trainer, updates)
        yield folder, start, trainer


def saved(results: Path) -> SavedRunState:
    """Reads the newest run state."""
    with opened(results, resume=True) as folder:
        state = CheckpointStore(folder).load_run_state()
    assert state is not None
    return state


def saved_after_one_update(results: Path) -> SavedRunState:
    """Starts a run, trains one update, and reads the run state that it saved."""
    with begun(results, 1) as (_, first, trainer):
        first.keeper.save_run_state({NAME: trainer})
    return saved(results)
