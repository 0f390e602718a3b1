"""Passes the trainers' reports to the writers named in the run file."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from learner.shared.observe.meters import RunMeters
from learner.shared.observe.stats import SETTINGS, VIDEO, StatsReporter, StatsWriter
from learner.training.run.writers import close_writers
from learner.training.trainers.base import Trainer
from learner.training.trainers.parts import Ending, RunPart, Trainers
from learner.training.writers.tensorboard import HYPERPARAMETERS, settings_table

LOOK_SECONDS: Final = 1.0
"""Time between two looks for new videos."""
_FILM: Final = re.compile(r"(?!\.)(.+)-episode-[0-9]{6,}(?:-[0-9]+)?\.mp4")


class Statistics(RunPart):
    """Creates the reporters of trainers, and writes the collected statistics at the end of the run.

    Args:
        meters: Counts failures of writers.
        writers: Receive the statistics; empty for a run without any.
        resumed: Whether the run continues from a checkpoint.
        settings: The file with the run's settings, which writers may keep; None for none.
        videos: Folder in which actors film episodes, which writers may keep; None for none.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        meters: RunMeters,
        writers: Sequence[StatsWriter] = (),
        *,
        resumed: bool = False,
        settings: Path | None = None,
        videos: Path | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._videos = videos
        self._clock = clock
        self._looked_at = clock()
        self._seen = set(self._films())
        self._settings = settings
        self._trainers: dict[str, Trainer] = {}
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
        self._trainers[trainer.brain_name] = trainer
        if self._resumed and step:
            stats.restart(step)
        stats.write_text(HYPERPARAMETERS, settings_table(trainer.trainer_settings.model_dump(mode="json")), step)
        if self._settings is not None:
            stats.write_artifact(SETTINGS, self._settings, step)

    def keep(self, kind: str, behavior: str, path: Path) -> None:
        """Passes a file of a behavior to the writers that keep files."""
        trainer = self._trainers.get(behavior)
        if trainer is not None and path.is_file():
            trainer.stats_reporter.write_artifact(kind, path, trainer.get_step)

    def after_turn(self, trainers: Trainers) -> None:
        """Passes new videos to the writers."""
        del trainers
        if self._videos is not None and self._clock() - self._looked_at >= LOOK_SECONDS:
            self._looked_at = self._clock()
            self._keep_videos()

    def _films(self) -> Iterator[Path]:
        """Yields the complete videos."""
        with contextlib.suppress(OSError):
            for path in self._videos.iterdir() if self._videos is not None else ():
                if _FILM.fullmatch(path.name) and path.stat().st_size:
                    yield path

    def _keep_videos(self) -> None:
        for path in sorted(set(self._films()) - self._seen):
            self._seen.add(path)
            found = _FILM.fullmatch(path.name)
            names = [name for name in self._trainers if len(self._trainers) == 1 or (found and found[1] == name)]
            for name in names:
                self.keep(VIDEO, name, path)

    def finish(self, trainers: Trainers, ending: Ending) -> bool:
        """Writes the last statistics and closes the files."""
        if self._videos is not None and not ending.is_superseded:
            self._keep_videos()
        for trainer in () if ending.is_superseded else trainers.values():
            trainer.stats_reporter.write_stats(trainer.get_step)
        close_writers(self._writers)
        return True
