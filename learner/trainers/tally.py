"""Episodes and statistics records: counted once, on arrival, whatever becomes of the steps around them."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose, StatAggregation
from rollcast.trajectories import Chunk

from learner.observe.metrics import BehaviorMetrics
from learner.observe.stats import Aggregation, StatsReporter


class EpisodeTally:
    """The returns of the newest training episodes, and how many there were.

    Args:
        stats: where lengths, returns and the environments' own statistics go.
        kept_episodes: how many returns the mean is over.
        strength: of the extrinsic reward signal, 0 without one.
        metrics: where returns and lengths of training episodes go, too.

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
    ) -> None:
        self._metrics = metrics
        self.returns: deque[float] = deque(maxlen=kept_episodes)
        self.episodes = 0
        self._stats = stats
        self._strength = strength

    def mean(self) -> float | None:
        """Returns the mean of the kept returns; None before the first episode."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def add(self, chunk: Chunk) -> None:
        """Counts the episodes and statistics records of a chunk."""
        if chunk.episodes:
            self._add_episodes(chunk)
        if chunk.stat_keys:
            self._add_records(chunk)

    def state_dict(self) -> dict[str, Any]:
        """Returns the count and the kept returns."""
        return {"episodes": self.episodes, "returns": list(self.returns)}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from what `state_dict` returned."""
        self.episodes = int(state["episodes"])
        self.returns.clear()
        self.returns.extend(float(value) for value in state["returns"])

    def _add_episodes(self, chunk: Chunk) -> None:
        columns = chunk.columns
        purposes = columns.get("episode/purpose")
        is_training = (
            np.ones(chunk.episodes, np.bool_)
            if purposes is None
            else (purposes == Purpose.TRAIN) | (purposes == Purpose.UNSPECIFIED)
        )
        self._report("Environment", chunk, is_training)
        if not is_training.all():
            self._report("Evaluation", chunk, ~is_training)
        finished = columns["episode/return"][is_training].astype(np.float64)  # sums of two may pass float32
        shared = columns.get("episode/group_return")
        total = finished if shared is None else finished + shared[is_training]
        if self._strength:
            self._stats.add_stats("Policy/Extrinsic Reward", total * self._strength)
        if self._metrics is not None:
            self._metrics.episode_return.observe(finished)
            self._metrics.episode_steps.observe(columns["episode/length"][is_training])
        self.returns.extend(finished.tolist())
        self.episodes += len(finished)

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

    def _add_records(self, chunk: Chunk) -> None:
        columns = chunk.columns
        if "stat/key" not in columns:
            return
        values = columns["stat/value"].tolist()
        kinds = columns.get("stat/aggregation")
        numbers = [StatAggregation.AVERAGE] * len(values) if kinds is None else kinds.tolist()
        for key, value, number in zip(columns["stat/key"].tolist(), values, numbers, strict=True):
            aggregation = Aggregation(number) if number else Aggregation.AVERAGE
            self._stats.add_stat(chunk.stat_keys[key], value, aggregation)
