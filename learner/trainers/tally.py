"""Episodes and statistics records: counted once, on arrival, whatever becomes of the steps around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import Purpose, StatAggregation
from rollcast.trajectories import Chunk

from learner.common.saved_values import count, numbers
from learner.curriculum.lessons import Lessons, no_lessons
from learner.link.evaluation import EvaluationSink, NoEvaluation, hand_on
from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.metrics.learner import unobserved
from learner.observe.stats import Aggregation, StatsReporter
from learner.settings.trainer import TrainerSettings

log = structlog.get_logger(__name__)

MAX_KEYS = 500
"""Different keys of one behavior in one start of the learner. Each is a curve of every tracker for ever, and a program
that puts a number into its keys would make them without end."""
MAX_METRIC_KEYS = 50
"""Of them, the first ones are time series of the metrics, too; what makes one is more expensive there."""


class RecordTally:
    """Takes the statistics records of chunks, and bounds how many keys there are.

    Args:
        stats: where they go.
        metrics: where the present value of the first keys is shown.
    """

    def __init__(self, stats: StatsReporter, metrics: BehaviorMetrics) -> None:
        self._stats = stats
        self._metrics = metrics
        self._keys: dict[str, bool] = {}  # whether the metrics show it
        self._has_warned = False

    def add(self, chunk: Chunk) -> None:
        """Adds the records of a chunk; those of keys beyond the limit are left out."""
        columns = chunk.columns
        if "stat/key" not in columns:
            return
        numbers = columns["stat/key"].tolist()
        kinds = columns.get("stat/aggregation")
        aggregations = [StatAggregation.AVERAGE] * len(numbers) if kinds is None else kinds.tolist()
        taken = [self._takes(key) for key in chunk.stat_keys]
        for number, value, kind in zip(numbers, columns["stat/value"].tolist(), aggregations, strict=True):
            if taken[number]:
                self._stats.add_stat(chunk.stat_keys[number], value, Aggregation(kind or StatAggregation.AVERAGE))
        for key in dict.fromkeys(chunk.stat_keys[number] for number in numbers):
            value = self._stats.value(key) if self._keys.get(key) else None
            if value is not None:
                self._metrics.show_statistic(key, value)

    def _takes(self, key: str) -> bool:
        if key in self._keys:
            return True
        if len(self._keys) >= MAX_KEYS:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "statistics_refused",
                    behavior=self._stats.category,
                    key=key,
                    limit=MAX_KEYS,
                    action="new keys are left out; do not put numbers into the keys",
                )
            return False
        self._keys[key] = len(self._keys) < MAX_METRIC_KEYS
        return True


class EpisodeTally:
    """The returns of the newest training episodes, and how many there were.

    Where there are lessons, episodes of earlier ones count in no mean: a lesson begins with none.

    Args:
        stats: where lengths, returns and the environments' own statistics go; its category is the behavior.
        kept_episodes: how many returns the mean is over.
        strength: of the extrinsic reward signal, 0 without one.
        metrics: where returns and lengths of training episodes go, too.
        lessons: told of each training episode.
        evaluations: told of each episode of an evaluation, which counts in nothing else here. Demonstrations count
            nowhere.

    Attributes:
        returns: the newest returns, oldest first.
        episodes: all training episodes so far.
    """

    def __init__(
        self,
        stats: StatsReporter,
        kept_episodes: int,
        strength: float = 1.0,
        *,
        metrics: BehaviorMetrics | None = None,
        lessons: Lessons | None = None,
        evaluations: EvaluationSink | None = None,
    ) -> None:
        self._metrics = metrics or unobserved()
        self._evaluations = evaluations or NoEvaluation()
        self._lessons = lessons or no_lessons()
        self._since_revision = self._lessons.since_revision
        self._records = RecordTally(stats, self._metrics)
        self.returns: deque[float] = deque(maxlen=kept_episodes)
        self.episodes = 0
        self._stats = stats
        self._strength = strength
        self._update_returns = 0.0
        self._update_episodes = 0

    def mean(self) -> float | None:
        """Returns the mean of the kept returns; None before the first episode."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def mean_since_update(self) -> float | None:
        """Returns the mean over the episodes since the last `note_update`; of the kept returns, where none ended."""
        return self._update_returns / self._update_episodes if self._update_episodes else self.mean()

    def note_update(self) -> None:
        """Notes that the policy has changed: episodes from here on are the next version's."""
        self._update_returns, self._update_episodes = 0.0, 0

    def add(self, chunk: Chunk) -> None:
        """Counts the episodes and statistics records of a chunk."""
        if chunk.episodes:
            self._add_episodes(chunk)
        if chunk.stat_keys:
            self._records.add(chunk)

    def note_progress(self, progress: float) -> None:
        """Tells the lessons that steps have come; ``progress`` is steps by `max_steps`."""
        self._lessons.note_progress(self._stats.category, progress)

    def report_lessons(self) -> None:
        """Adds the number of each lesson to the statistics, as ML-Agents does for every behavior."""
        for parameter, number in self._lessons.numbers().items():
            self._stats.set_stat(f"Environment/Lesson Number/{parameter}", number)

    def state_dict(self) -> dict[str, Any]:
        """Returns the count and the kept returns."""
        return {
            "episodes": self.episodes,
            "returns": list(self.returns),
            "since_revision": self._since_revision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Takes over what `state_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: it is not what was saved.
        """
        episodes, returns = count(state, "episodes"), numbers(state, "returns")
        since_revision = count({"since_revision": 0, **state}, "since_revision")
        self.episodes = episodes
        self.returns.clear()
        if since_revision == self._since_revision:  # else a lesson has begun since
            self.returns.extend(returns)

    def _add_episodes(self, chunk: Chunk) -> None:
        columns = chunk.columns
        purposes = columns.get("episode/purpose")
        is_training = (
            np.ones(chunk.episodes, np.bool_)
            if purposes is None
            else (purposes == Purpose.TRAIN) | (purposes == Purpose.UNSPECIFIED)
        )
        if not is_training.all():
            hand_on(self._stats.category, chunk, self._evaluations)
        if not is_training.any():
            return
        self._report("Environment", chunk, is_training)
        finished = columns["episode/return"][is_training].astype(np.float64)  # sums of two may pass float32
        shared = columns.get("episode/group_return")
        total = finished if shared is None else finished + shared[is_training]
        if self._strength:
            self._stats.add_stats("Policy/Extrinsic Reward", total * self._strength)
        self._metrics.episode_return.observe(finished)
        self._metrics.episode_steps.observe(columns["episode/length"][is_training])
        self.episodes += len(finished)
        self._update_episodes += len(finished)
        self._update_returns += float(finished.sum())
        self._keep(finished.tolist(), columns.get("episode/settings_revision"), is_training)

    def _keep(self, returns: list[float], told: NDArray[Any] | None, is_training: NDArray[np.bool_]) -> None:
        """Keeps the returns of the present lesson, and tells the lessons of all."""
        revisions = [None] * len(returns) if told is None else told[is_training].tolist()
        for value, revision in zip(returns, revisions, strict=True):
            self._lessons.add_episode(self._stats.category, value, revision)
            if self._lessons.since_revision != self._since_revision:
                self._since_revision = self._lessons.since_revision
                self.returns.clear()
            # Parameters never reach actors that do not say their revision: nothing changed for them.
            if revision is None or revision >= self._since_revision:
                self.returns.append(value)

    def _report(self, group: str, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        columns = chunk.columns
        self._stats.add_stats(f"{group}/Cumulative Reward", columns["episode/return"][chosen], Aggregation.HISTOGRAM)
        self._stats.add_stats(f"{group}/Episode Length", columns["episode/length"][chosen])
        group_returns = columns.get("episode/group_return")
        if group_returns is not None:
            self._stats.add_stats(f"{group}/Group Cumulative Reward", group_returns[chosen], Aggregation.HISTOGRAM)
        for name, values in columns.items():
            if name.startswith("info/"):
                present = values[chosen]
                self._stats.add_stats(f"{group}/{name[5:]}", present[~np.isnan(present)])


def extrinsic_strength(settings: TrainerSettings) -> float:
    """Returns the strength of the extrinsic reward signal, 0 without one."""
    extrinsic = settings.reward_signals.extrinsic
    return 0.0 if extrinsic is None else extrinsic.strength


class EpisodeRewards:
    """Mean sums of rewards an episode.

    ML-Agents adds up the rewards of each agent until its episode ends. Here the rewards of all steps are added up until
    some episode has ended, and divided by how many have: weighted with their number of episodes, these means have the
    same mean, but for the episodes that run at the beginning and at the end. Steps that were dropped are in neither sum.

    Attributes:
        episodes: that the last means are over.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self._sums: dict[str, float] = {}

    def add(self, sums: Mapping[str, float], ended: int) -> Mapping[str, float]:
        """Adds the steps of an update.

        Args:
            sums: of rewards over these steps, by signal.
            ended: how many episodes ended with one of them.

        Returns:
            Rewards of an episode by signal, over the steps since some episode ended last; nothing if none has now.
        """
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        if not ended:
            return {}
        self.episodes = ended
        means = {name: value / ended for name, value in self._sums.items()}
        self._sums.clear()
        return means
