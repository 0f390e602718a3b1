"""Passes the trainers' reports to the writers named in the run file."""

from __future__ import annotations

from collections.abc import Sequence

from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import StatsReporter, StatsWriter
from learner.training.run.writers import close_writers
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.writers.tensorboard import HYPERPARAMETERS, settings_table


class Statistics(RunPart):
    """Creates the reporters of trainers, and writes the collected statistics at the end of the run.

    Args:
        meters: Counts failures of writers.
        writers: Receive the statistics; empty for a run without any.
        resumed: Whether the run continues from a checkpoint.
    """

    def __init__(self, meters: RunMeters, writers: Sequence[StatsWriter] = (), *, resumed: bool = False) -> None:
        self._writers = tuple(writers)
        self._meters = meters
        self._resumed = resumed
        meters.declare_stats_writers(self._writers)

    def reporter(self, behavior: str) -> StatsReporter:
        """Returns the reporter of a trainer."""
        return StatsReporter(behavior, self._writers, on_failure=self._meters.stats_writer_failed)

    def trainer_added(self, trainer: Trainer) -> None:
        """Passes the writers the step from which the behavior continues, and its settings."""
        stats, step = trainer.stats_reporter, trainer.get_step
        if self._resumed and step:
            stats.restart(step)
        stats.write_text(HYPERPARAMETERS, settings_table(trainer.trainer_settings.model_dump(mode="json")), step)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Writes the last statistics and closes the files."""
        for trainer in () if ending.is_superseded else trainers.values():
            trainer.stats_reporter.write_stats(trainer.get_step)
        close_writers(self._writers)
        return True
