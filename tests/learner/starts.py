"""Starts of a learner without its service, in a run folder: what the tests of its top-level modules are made of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from learner.link.to_front import ToFront
from learner.service.ingest.snapshots import restore, snapshot
from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import StatsReporter
from learner.shared.runfolder.runfolder import RunFolder, must_fit, open_run_folder
from learner.shared.runfolder.store import CheckpointStore, SavedRunState
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.run.checkpointing import CheckpointKeeper
from learner.training.trainers.base import TrainerContext
from learner.training.trainers.parts import Trainers
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.reporting import Reporting, Sources
from tests.learner.service.ingest.parts import NAME, Parts
from tests.learner.training.trainers.in_process import Bench, CartPoleActor, Published

SETTINGS: dict[str, Any] = {
    "hyperparameters": {"batch_size": 64, "buffer_size": 256, "num_epoch": 1},
    "network_settings": {"hidden_units": 16, "num_layers": 1},
    "time_horizon": 32,
}
OPTIONS = RunOptions.model_validate({"behaviors": {NAME: SETTINGS}})


class Start:
    """A start of a learner without its service: the parts of a checkpoint."""

    def __init__(
        self, folder: RunFolder, generation: int, seconds: float = 1e-9, lessons: Lessons | None = None
    ) -> None:
        self.parts = Parts(OPTIONS, generation=generation)
        self.run_status = self.parts.run_status(OPTIONS.rollcast, time.monotonic)
        self.store = CheckpointStore(folder)
        self.published = Published()
        self.meters = RunMeters()
        self.commands: list[ToFront] = []
        self.lessons = lessons or no_lessons()
        self.reporting = Reporting(self.run_status.take_stats, Sources(self.meters, lessons=self.lessons.view))
        self.keeper = CheckpointKeeper(
            self.store,
            cut=self._cut,
            generation=generation,
            checkpoint_seconds=seconds,
            extra={"seed": {"run": 5}},
            metrics=self.meters.checkpoints,
            on_not_saved=self._note_not_saved,
            lessons=self.lessons,
        )

    def _note_not_saved(self, reason: str) -> None:
        self.reporting.last_error = reason

    def _cut(self) -> dict[str, Any]:
        parts = self.parts
        books = snapshot(parts.behaviors, parts.sessions, parts.ledger)
        return {**books, "status": self.run_status.state_dict()}

    def restore(self, state: SavedRunState) -> None:
        """Restores a run state."""
        parts = self.parts
        books = {"behaviors": state.behaviors_table, "ledger": state.ledger, "sessions": state.sessions}
        with must_fit(self.store.folder.run_state):
            restore(books, parts.behaviors, parts.sessions, parts.ledger, state.trainers.keys())
            self.run_status.load_state_dict(state.extra.get("status", state.extra))
            self.keeper.restore(state)

    def report(self, trainers: Trainers | None = None) -> None:
        """Reports the trainers' state to the status."""
        self.reporting.send(trainers or {}, busy_seconds=0.0, is_paused=False)

    def join(self) -> PPOTrainer:
        """Declares the behavior as an actor and makes its trainer."""
        self.parts.declared(self.parts.open().session)
        return self.trainer()

    def trainer(self) -> PPOTrainer:
        """Makes the trainer of the behavior, and lets it begin."""
        behavior, parts = self.parts.behaviors.all()[0], self.parts
        self.bench = Bench(
            parts.link, parts.behaviors, behavior, parts.ledger, StatsReporter(NAME), published=self.published
        )
        context: TrainerContext = self.bench.context(saver=self.keeper)
        trainer = PPOTrainer(context)
        self.keeper.trainer_added(trainer)
        trainer.start()
        return trainer

    def train(self, trainer: PPOTrainer, updates: int) -> None:
        """Takes steps until the trainer has made so many updates."""
        actor = CartPoleActor(self.bench, environments=2)
        end = trainer.version + updates
        while trainer.version < end:
            actor.run(64)
            trainer.advance()
        self.report({NAME: trainer})


@contextmanager
def opened(results: Path, *, resume: bool = False) -> Iterator[RunFolder]:
    """Opens the run folder, locked for the block."""
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
