"""Builds the trainers of a run with everything they need from outside."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from functools import partial

import torch

from learner.checkpoints.runfolder import RunFolder
from learner.curriculum.lessons import Lessons
from learner.evaluation.during_training import EvaluationManager
from learner.ingest.behaviors import Behavior
from learner.ingest.ledger import Ledger
from learner.link.evaluation import NoEvaluation
from learner.observe.metrics.learner import LearnerMetrics
from learner.observe.stats import StatsReporter, StatsWriter
from learner.observe.tensorboard import HYPERPARAMETERS, settings_table
from learner.publish.publisher import PolicyPublisher
from learner.publish.store import PolicyStore
from learner.run.checkpointing import CheckpointKeeper
from learner.settings.options import RunOptions
from learner.status.run_status import TrainerStats
from learner.status.writers import close_writers
from learner.trainers import registry
from learner.trainers.base import Trainer, TrainerContext


class TrainerFactory:
    """Makes a trainer for each behavior, as it is declared; used in the trainer thread.

    Args:
        options: the run file.
        folder: of the run.
        writers: where statistics go; closed with the factory.
        ledger: the books.
        store: where policies go.
        keeper: loads saved states and writes checkpoints.
        generation: of this start of the learner.
        seed: of the run.
        device: where networks and rings are.
        metrics: where the trainers count.
        lessons: what the environments are set to.
        evaluations: evaluates, and keeps the best; None for neither.
    """

    def __init__(
        self,
        options: RunOptions,
        folder: RunFolder,
        *,
        ledger: Ledger,
        store: PolicyStore,
        keeper: CheckpointKeeper,
        generation: int,
        seed: int,
        device: torch.device,
        metrics: LearnerMetrics,
        writers: Sequence[StatsWriter],
        lessons: Lessons,
        evaluations: EvaluationManager | None = None,
    ) -> None:
        self._lessons = lessons
        self._evaluations = evaluations
        self._metrics = metrics
        self._options = options
        self._ledger = ledger
        self._store = store
        self._keeper = keeper
        self._generation = generation
        self._seed = seed
        self._device = device
        self._writers = tuple(writers)
        metrics.declare_stats_writers(self._writers)
        self._is_resumed = folder.resuming

    def build(self, behavior: Behavior) -> Trainer:
        """Returns the trainer of a behavior, with the state it starts from.

        Raises:
            UserError: its settings, or the saved state, do not fit.
        """
        stats = StatsReporter(behavior.name, self._writers, on_failure=self._metrics.stats_writer_failed)
        network = behavior.settings.network_settings
        context = TrainerContext(
            behavior=behavior,
            ledger=self._ledger,
            stats=stats,
            open_publisher=partial(
                PolicyPublisher,
                store=self._store,
                behavior_index=behavior.index,
                generation=self._generation,
                deterministic=network.deterministic,
                memory_stride=behavior.memory_stride,
            ),
            generation=self._generation,
            seed=self._seed_of(behavior),
            device=self._device,
            service=self._options.rollcast,
            saver=self._keeper,
            evaluations=self._evaluations or NoEvaluation(),
            metrics=self._metrics.behavior(behavior.name),
            lessons=self._lessons,
        )
        trainer = registry.build(context)
        self._keeper.begin(trainer)
        if self._evaluations is not None:
            self._evaluations.begin(trainer)
        if self._is_resumed and trainer.get_step:
            stats.restart(trainer.get_step)
        stats.write_text(HYPERPARAMETERS, settings_table(behavior.settings.model_dump(mode="json")), trainer.get_step)
        return trainer

    def _seed_of(self, behavior: Behavior) -> int:
        """Returns the seed of a trainer; in lock-step it follows from the name, as behaviors are declared in any order."""
        if self._options.rollcast.lockstep is None:
            return self._seed + behavior.index
        return self._seed + zlib.crc32(behavior.name.encode())

    def close(self, trainers: Mapping[str, Trainer]) -> None:
        """Writes the last statistics and closes the files."""
        for trainer in trainers.values():
            trainer.stats_reporter.write_stats(trainer.get_step)
        close_writers(self._writers)


def trainer_stats(trainer: Trainer) -> TrainerStats:
    """Returns what a trainer is like now; in its thread."""
    return TrainerStats(
        version=trainer.version,
        env_steps_trained=trainer.steps_trained,
        episodes=trainer.episodes,
        mean_return=trainer.mean_return(),
        mean_lag=trainer.mean_lag,
        log_prob_error_max=trainer.log_prob_error_max,
        is_full=len(trainer.reward_buffer) == trainer.reward_buffer.maxlen,
    )
