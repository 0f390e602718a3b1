"""Episodes and statistics records: counted once, on arrival, whatever becomes of the steps around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.common.saved_values import count, numbers
from learner.curriculum.lessons import Lessons, no_lessons
from learner.link.evaluation import EvaluationSink, NoEvaluation, hand_on
from learner.observe.metrics.behaviors import BehaviorMetrics
from learner.observe.stats import Aggregation, StatsReporter
from learner.settings.trainer import TrainerSettings
from learner.trainers.records import RecordTally


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
        self._metrics = metrics
        self._evaluations = evaluations or NoEvaluation()
        self._lessons = lessons or no_lessons()
        self._since_revision = self._lessons.since_revision
        self._records = RecordTally(stats, metrics)
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

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` returned.

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
        if self._metrics is not None:
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
