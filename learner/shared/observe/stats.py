"""Statistics of one behavior: collected per update and passed to the writers as summaries.

The names are those of ML-Agents (``Losses/Policy Loss``, ``Environment/Cumulative Reward``, ...), so that existing
dashboards work.
"""

from __future__ import annotations

import enum
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.text import in_one_line

log = structlog.get_logger(__name__)

MAX_KEYS = 1000
"""Most keys of one category between two writes; environments create keys too, and must not fill the memory."""
TOLD_AGAIN_SECONDS = 60.0
"""Shortest time between two log lines about one failing writer, in seconds."""
HIDDEN_KEYS = frozenset({"Is Training", "Step"})
"""Statistics for the console only."""
MAX_HISTOGRAM_VALUES = 10_000
"""Newest values kept for a histogram; mean, standard deviation and count cover all of them."""


SETTINGS, MODEL, VIDEO, GAME = ARTIFACTS = ("settings", "model", "video", "game")
"""Kinds of files that writers may keep: the run's settings, an exported model, an episode as .mp4, the record of a game."""


class Aggregation(enum.IntEnum):
    """Ways to reduce a statistic to one number; the values are those of ``rollcast.v1.StatAggregation``."""

    AVERAGE = 1
    MOST_RECENT = 2
    SUM = 3
    HISTOGRAM = 4


@dataclass(frozen=True, slots=True)
class StatSummary:
    """The values of one statistic since the last write.

    Attributes:
        aggregation: Decides :attr:`value`.
        count: Number of finite values.
        mean: Mean of these values; NaN if there are none.
        std: Standard deviation of these values (divided by ``count``); NaN if there are none.
        total: Sum of these values.
        latest: The newest value, finite or not.
        not_finite: Number of values that were NaN or infinite; only ``latest`` includes them.
        values: ``[K]`` float64, the newest values of a HISTOGRAM, otherwise empty.
    """

    aggregation: Aggregation
    count: int
    mean: float
    std: float
    total: float
    latest: float
    not_finite: int
    values: NDArray[np.float64]

    @property
    def value(self) -> float:
        """The number that represents the statistic; NaN if it had no finite value."""
        return _value(self)


class StatsWriter(Protocol):
    """Writes summaries: to TensorBoard, a CSV file, or a user's tracker.

    Calls come from the trainers' thread between two updates, so slow calls delay training. The last calls come from the
    thread that ends the run. An exception is logged, and the writer is called again with the next summary.
    """

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Writes the summaries up to an environment step."""

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Writes a text (Markdown), such as the hyperparameters."""

    def restart(self, category: str, step: int) -> None:
        """Records that a run resumes from a checkpoint: values written at later steps are not part of it."""

    def close(self) -> None:
        """Writes remaining values and closes files; safe to repeat."""


@runtime_checkable
class ArtifactWriter(Protocol):
    """A `StatsWriter` that keeps files of the run as well; called in the same way."""

    def write_artifact(self, category: str, kind: str, path: Path, step: int) -> None:
        """Keeps a file, which may be deleted after the call.

        Args:
            category: Name of the behavior.
            kind: One of `ARTIFACTS`.
            path: The file.
            step: Environment steps trained.
        """


class StatsReporter:
    """Collects the statistics of one category (a behavior) and passes them to writers.

    Thread-safe and cheap: adding a number takes a few float operations under a lock. A failing writer (a full disk) is
    logged at most once a minute and called again with the next values; statistics never end a training. The creator of
    the writers closes them.

    Args:
        category: Name of the behavior.
        writers: Writers of the summaries.
        on_failure: Called with a writer each time it fails.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        category: str,
        writers: Sequence[StatsWriter] = (),
        clock: Callable[[], float] = time.monotonic,
        on_failure: Callable[[StatsWriter], object] | None = None,
    ) -> None:
        self._on_failure = on_failure
        self.category = category
        self._writers = list(writers)
        self._failing: dict[int, bool] = {}  # by index in _writers: whether the failure was logged
        self._told_at: dict[int, float] = {}
        self._clock = clock
        self._lock = threading.Lock()
        self._stats: dict[str, _Accumulator] = {}
        self._warned_of_keys = False

    def add_stat(self, key: str, value: float, aggregation: Aggregation = Aggregation.AVERAGE) -> None:
        """Adds one value; the last aggregation of a key applies."""
        with self._lock:
            stat = self._stat(key, aggregation)
            if stat is not None:
                stat.add(float(value))

    def add_stats(self, key: str, values: NDArray[Any], aggregation: Aggregation = Aggregation.AVERAGE) -> None:
        """Adds every element of an array of any shape and any real dtype."""
        flat = np.asarray(values, dtype=np.float64).reshape(-1)
        with self._lock:
            stat = self._stat(key, aggregation)
            if stat is not None:
                stat.add_array(flat)

    def set_stat(self, key: str, value: float) -> None:
        """Sets a statistic of which only the newest value counts."""
        self.add_stat(key, value, Aggregation.MOST_RECENT)

    def summary(self, key: str) -> StatSummary | None:
        """Returns the summary of a key since the last write; None if there is none."""
        with self._lock:
            stat = self._stats.get(key)
            return None if stat is None else stat.summary()

    def value(self, key: str) -> float | None:
        """Returns the value of a key since the last write; None if it has none."""
        with self._lock:
            stat = self._stats.get(key)
            return None if stat is None or not stat.used else stat.value

    def write_stats(self, step: int) -> dict[str, StatSummary]:
        """Passes all collected statistics to the writers, resets them, and returns them.

        Args:
            step: Environment steps trained; the x-axis.
        """
        with self._lock:
            stats, self._stats = self._stats, {}
        summaries = {key: stat.summary() for key, stat in stats.items() if stat.used}
        if summaries:
            self._tell(lambda writer: writer.write(self.category, summaries, step))
        return summaries

    def write_text(self, title: str, text: str, step: int = 0) -> None:
        """Passes a text to the writers at once."""
        self._tell(lambda writer: writer.write_text(self.category, title, text, step))

    def write_artifact(self, kind: str, path: Path, step: int) -> None:
        """Passes a file to the writers that keep files; see `ArtifactWriter`."""
        self._tell(lambda writer: writer.write_artifact(self.category, kind, path, step), ArtifactWriter)

    def restart(self, step: int) -> None:
        """Tells the writers that the run resumes from a checkpoint of this step."""
        self._tell(lambda writer: writer.restart(self.category, step))

    def _stat(self, key: str, aggregation: Aggregation) -> _Accumulator | None:
        stat = self._stats.get(key)
        if stat is None:
            if len(self._stats) >= MAX_KEYS:
                if not self._warned_of_keys:
                    self._warned_of_keys = True
                    log.warning("stat_keys_refused", category=self.category, key=key, limit=MAX_KEYS)
                return None
            stat = self._stats[key] = _Accumulator()
        stat.aggregation = aggregation
        return stat

    def _tell(self, call: Callable[[Any], None], kind: type = object) -> None:
        for place, writer in enumerate(self._writers):
            if not isinstance(writer, kind):
                continue
            try:
                call(writer)
            except BaseException as error:  # noqa: BLE001 - told; a user's writer ends no training, by sys.exit neither
                self._note_failure(place, error)
            else:
                if self._failing.pop(place, False):
                    log.info("stats_written_again", writer=type(writer).__name__, category=self.category)

    def _note_failure(self, place: int, error: BaseException) -> None:
        if self._on_failure is not None:
            self._on_failure(self._writers[place])
        if place in self._failing:
            return
        # An almost full disk may accept one write and refuse the next.
        now = self._clock()
        self._failing[place] = now - self._told_at.get(place, -math.inf) >= TOLD_AGAIN_SECONDS
        if self._failing[place]:
            self._told_at[place] = now
            log.warning(
                "stats_not_written",
                writer=type(self._writers[place]).__name__,
                category=self.category,
                error=str(error) if isinstance(error, OSError) else in_one_line(error),
                action="retries with the next summary",
            )


class _Accumulator:
    """Moments of a stream of values, merged as in Chan, Golub, LeVeque (1979), equation 2.1."""

    __slots__ = ("aggregation", "count", "latest", "mean", "not_finite", "squares", "total", "values")

    def __init__(self) -> None:
        self.aggregation = Aggregation.AVERAGE
        self.count = 0
        self.mean = 0.0
        self.squares = 0.0  # sum of squared deviations from the mean
        self.total = 0.0
        self.latest = math.nan
        self.not_finite = 0
        self.values: deque[float] = deque(maxlen=MAX_HISTOGRAM_VALUES)

    @property
    def used(self) -> bool:
        return self.count > 0 or self.not_finite > 0

    @property
    def value(self) -> float:
        return _value(self)

    def add(self, value: float) -> None:
        self.latest = value
        if not math.isfinite(value):
            self.not_finite += 1
            return
        self.count += 1
        self.total += value
        distance = value - self.mean
        self.mean += distance / self.count
        self.squares += distance * (value - self.mean)
        if self.aggregation is Aggregation.HISTOGRAM:
            self.values.append(value)

    def add_array(self, values: NDArray[np.float64]) -> None:
        if values.size == 0:
            return
        self.latest = float(values[-1])
        finite = values[np.isfinite(values)]
        self.not_finite += values.size - finite.size
        if finite.size == 0:
            return
        with np.errstate(over="ignore", invalid="ignore"):  # values from outside may be arbitrarily large
            mean = float(finite.mean())
            squares = float(np.square(finite - mean).sum())
            self.total += float(finite.sum())
        both = self.count + finite.size
        distance = mean - self.mean
        self.mean += distance * finite.size / both
        self.squares += squares + distance * distance * self.count * finite.size / both
        self.count = both
        if self.aggregation is Aggregation.HISTOGRAM:
            self.values.extend(finite[-MAX_HISTOGRAM_VALUES:].tolist())

    def summary(self) -> StatSummary:
        return StatSummary(
            aggregation=self.aggregation,
            count=self.count,
            mean=self.mean if self.count else math.nan,
            std=math.sqrt(max(0.0, self.squares / self.count)) if self.count else math.nan,
            total=self.total,
            latest=self.latest,
            not_finite=self.not_finite,
            values=np.array(self.values, dtype=np.float64),
        )


def _value(stat: StatSummary | _Accumulator) -> float:
    if stat.aggregation is Aggregation.MOST_RECENT:
        return stat.latest
    if not stat.count:
        return math.nan
    return stat.total if stat.aggregation is Aggregation.SUM else stat.mean
