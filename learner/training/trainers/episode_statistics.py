"""Counts episodes and statistics records once, on arrival, whatever the outcome of their steps."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import repeat
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import AssignmentRole, GroupEnd, Purpose, StatAggregation
from rollcast.trajectories import Chunk

from learner.shared.leave_one_out import Source, SourcedValues
from learner.shared.observe.meters import BehaviorMeters
from learner.shared.observe.stats import Aggregation, StatsReporter
from learner.shared.saved_values import count, numbers
from learner.shared.settings.trainer import TrainerSettings
from learner.training.curriculum.lessons import NOTHING_ELSE, Lessons, no_lessons
from learner.training.curriculum.measures import GROUP_REWARD, statistic_name

log = structlog.get_logger(__name__)

MAX_KEYS = 500
"""Most different keys of one behavior in one start of the learner. Each key is a permanent curve in every tracker, and
a program that puts a number into its keys would create them without end."""
MAX_METRIC_KEYS = 50
"""Number of first keys that are also time series of the metrics, where they are more expensive."""

_OWN_KEY: Final = re.compile(
    r"(policy|losses|evaluation)/|environment/(lesson number/|(group )?cumulative reward$|episode length$)"
)
"""Keys of the learner's own curves. Trackers may show letters and signs differently, so only words are compared."""


def _is_own(key: str) -> bool:
    """Returns whether a key is one of the learner's own curves, which no actor writes directly."""
    return _OWN_KEY.match(re.sub(r"[^a-z0-9/]+", " ", key.casefold()).strip()) is not None


class RecordStatistics:
    """Takes the statistics records of chunks and limits the number of keys.

    Args:
        stats: Receives the records.
        numbers: Receives the current value of the first keys as ``environment_statistic/KEY``.
        lessons: Receives the values that lessons measure.
    """

    def __init__(self, stats: StatsReporter, numbers: dict[str, float], lessons: Lessons) -> None:
        self._stats = stats
        self._lessons = lessons
        names = map(statistic_name, lessons.measures(stats.category))
        self._measured = frozenset(name for name in names if name is not None)
        self._numbers = numbers
        self._keys: dict[str, bool] = {}  # value: whether the metrics show the key
        self._has_warned = self._has_warned_of_own = False

    def add(self, chunk: Chunk, source: Source = Source()) -> None:  # noqa: B008 - a frozen value
        """Adds the records of a chunk from an actor; leaves out keys beyond the limit."""
        columns = chunk.columns
        if "stat/key" not in columns:
            return
        numbers = columns["stat/key"].tolist()
        kinds = columns.get("stat/aggregation")
        aggregations = [StatAggregation.AVERAGE] * len(numbers) if kinds is None else kinds.tolist()
        taken = [self._takes(key) for key in chunk.stat_keys]
        for number, value, kind in zip(numbers, columns["stat/value"].tolist(), aggregations, strict=True):
            if chunk.stat_keys[number] in self._measured:
                self._lessons.add_statistic(self._stats.category, chunk.stat_keys[number], value, source)
            if taken[number]:
                self._stats.add_stat(chunk.stat_keys[number], value, Aggregation(kind or StatAggregation.AVERAGE))
        for key in dict.fromkeys(chunk.stat_keys[number] for number in numbers):
            value = self._stats.value(key) if self._keys.get(key) else None
            if value is not None:
                self._numbers[f"environment_statistic/{key}"] = value

    def _takes(self, key: str) -> bool:
        if key in self._keys:
            return True
        if _is_own(key):
            if not self._has_warned_of_own:
                self._has_warned_of_own = True
                log.warning(
                    "statistic_not_an_actors",
                    behavior=self._stats.category,
                    key=key,
                    action="the learner computes this curve itself; give the environment's statistic another key",
                )
            return False
        if len(self._keys) >= MAX_KEYS:
            if not self._has_warned:
                self._has_warned = True
                log.warning(
                    "statistics_refused",
                    behavior=self._stats.category,
                    key=key,
                    limit=MAX_KEYS,
                    action="new keys are ignored; do not put numbers into keys",
                )
            return False
        self._keys[key] = len(self._keys) < MAX_METRIC_KEYS
        return True


class EpisodeStatistics:
    """Keeps the returns of the newest training episodes and counts all of them, and none of any other purpose.

    With lessons, means leave out episodes of earlier lessons: a lesson begins without episodes.

    Args:
        stats: Receives lengths, returns and the environments' statistics; its category is the behavior.
        kept_episodes: Number of returns in the mean.
        strength: Strength of the extrinsic reward signal; 0 without it.
        metrics: Also receives returns and lengths of training episodes.
        numbers: Numbers reported by the trainer, to which the mean length and the environments' statistics are added.
        lessons: Receives each training episode.
        grouped: Whether agents are in groups: only the group returns of those whose episodes ended with their group are
            then reported and measured by lessons, as poca does in ML-Agents; those of agents that end early are parts.
        present: Returns the present actors that have sent steps.

    Attributes:
        returns: The newest returns, oldest first.
        episodes: Number of training episodes so far.
    """

    def __init__(
        self,
        stats: StatsReporter,
        kept_episodes: int,
        strength: float = 1.0,
        *,
        metrics: BehaviorMeters | None = None,
        numbers: dict[str, float] | None = None,
        lessons: Lessons | None = None,
        grouped: bool = False,
        present: Callable[[], Collection[Source]] = tuple,
    ) -> None:
        self._grouped = grouped
        self._present = present
        self._sourced = SourcedValues(kept_episodes)
        self._metrics = metrics or BehaviorMeters()
        self._lessons = lessons or no_lessons()
        self._since_revision = self._lessons.since_revision
        self._numbers = {} if numbers is None else numbers
        self._records = RecordStatistics(stats, self._numbers, self._lessons)
        self.returns: deque[float] = deque(maxlen=kept_episodes)
        self._lengths: deque[float] = deque(maxlen=kept_episodes)
        self.episodes = 0
        self._stats = stats
        self._strength = strength
        self._update_returns = 0.0
        self._update_episodes = 0

    def mean(self) -> float | None:
        """Returns the mean of the kept returns; None before the first episode."""
        return sum(self.returns) / len(self.returns) if self.returns else None

    def least_mean(self) -> float | None:
        """Returns the smallest of `mean` and the means without any one source; None before the first episode.

        It is minus infinity if the returns of only one of several sources are known.
        """
        mean = self.mean()
        return None if mean is None else min(mean, self._sourced.least_mean(self._present()))

    def mean_since_update(self) -> float | None:
        """Returns the mean over the episodes since the last `note_update`, or of the kept returns if none ended."""
        return self._update_returns / self._update_episodes if self._update_episodes else self.mean()

    def note_update(self) -> None:
        """Notes that the policy has changed: later episodes belong to the next version."""
        self._update_returns, self._update_episodes = 0.0, 0

    def add(self, chunk: Chunk, source: Source = Source()) -> None:  # noqa: B008 - a frozen value
        """Counts the episodes and statistics records of a chunk from an actor."""
        if chunk.episodes:
            self._add_episodes(chunk, source)
        if chunk.stat_keys:
            self._records.add(chunk, source)

    def note_progress(self, progress: float) -> None:
        """Reports progress to the lessons; ``progress`` is steps divided by `max_steps`."""
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
            "sourced": self._sourced.state_dict(),
            "since_revision": self._since_revision,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Loads what `state_dict` returned.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
        """
        episodes, returns = count(state, "episodes"), numbers(state, "returns")
        since_revision = count(state, "since_revision")
        self.episodes = episodes
        self.returns.clear()
        if since_revision == self._since_revision:  # otherwise a lesson has begun since
            self.returns.extend(returns)
            self._sourced.load_state_dict(state["sourced"])

    def _add_episodes(self, chunk: Chunk, source: Source) -> None:
        columns = chunk.columns
        purposes = columns.get("episode/purpose")
        is_training = (
            np.ones(chunk.episodes, np.bool_)
            if purposes is None
            else (purposes == Purpose.TRAIN) | (purposes == Purpose.UNSPECIFIED)
        )
        roles = columns.get("episode/role")
        if roles is not None:
            is_training &= roles != AssignmentRole.OPPONENT
        if not is_training.any():
            return
        self._report("Environment", chunk, is_training)
        finished = columns["episode/return"][is_training].astype(np.float64)  # a sum of two can overflow float32
        shared = columns.get("episode/group_return")
        total = finished if shared is None else finished + shared[is_training]
        if self._strength:
            self._stats.add_stats("Policy/Extrinsic Reward", total * self._strength)
        self._metrics.episode_return.observe(total)
        lengths = columns["episode/length"][is_training]
        self._metrics.episode_steps.observe(lengths)
        self._lengths.extend(lengths.tolist())
        self._numbers["episode_length_mean"] = sum(self._lengths) / len(self._lengths)
        self.episodes += len(finished)
        self._update_episodes += len(finished)
        self._update_returns += float(total.sum())
        self._keep(total.tolist(), chunk, is_training, source)

    def _keep(self, returns: list[float], chunk: Chunk, is_training: NDArray[np.bool_], source: Source) -> None:
        """Keeps the returns of the current lesson, and passes all episodes to the lessons."""
        told = chunk.columns.get("episode/settings_revision")
        revisions = [None] * len(returns) if told is None else told[is_training].tolist()
        others = self._measured(chunk, is_training)
        for value, revision, more in zip(returns, revisions, others or repeat(NOTHING_ELSE, len(returns)), strict=True):
            self._lessons.add_episode(self._stats.category, value, revision, more, source=source)
            if self._lessons.since_revision != self._since_revision:
                self._since_revision = self._lessons.since_revision
                self.returns.clear()
                self._sourced.clear()
            # Actors that do not report their revision never get parameters, so nothing changed for them.
            if revision is None or revision >= self._since_revision:
                self.returns.append(value)
                self._sourced.append(value, source)

    def _measured(self, chunk: Chunk, is_training: NDArray[np.bool_]) -> list[dict[str, float]] | None:
        """Returns what lessons measure of each training episode in addition to its return; None if nothing.

        A value is NaN for an episode that does not have it.
        """
        found = {}
        for measure in self._lessons.measures(self._stats.category):
            name = statistic_name(measure) or ""
            column = "episode/group_return" if measure == GROUP_REWARD else f"info/{name.removeprefix('Environment/')}"
            values = chunk.columns.get(column)
            if values is None:
                continue
            if measure == GROUP_REWARD and self._grouped:
                values = np.where(_ended_with_group(chunk), values, np.nan)
            found[measure] = values[is_training].tolist()
        return [dict(zip(found, values, strict=True)) for values in zip(*found.values(), strict=True)] or None

    def _report(self, group: str, chunk: Chunk, chosen: NDArray[np.bool_]) -> None:
        columns = chunk.columns
        self._stats.add_stats(f"{group}/Cumulative Reward", columns["episode/return"][chosen], Aggregation.HISTOGRAM)
        self._stats.add_stats(f"{group}/Episode Length", columns["episode/length"][chosen])
        group_returns = columns.get("episode/group_return")
        if group_returns is not None:
            whole = chosen & _ended_with_group(chunk) if self._grouped else chosen
            self._stats.add_stats(f"{group}/Group Cumulative Reward", group_returns[whole], Aggregation.HISTOGRAM)
        for name, values in columns.items():
            if name.startswith("info/") and not _is_own(f"{group}/{name[5:]}"):
                present = values[chosen]
                self._stats.add_stats(f"{group}/{name[5:]}", present[~np.isnan(present)])


def _ended_with_group(chunk: Chunk) -> NDArray[np.bool_]:
    """Returns for each episode record whether the group's episode ended with it, ``[E]``.

    Outside of matches records do not say so. The chunk then has the end of the group: an actor sends the record of an
    episode with its last segment, unless mates that continue hold that segment back.
    """
    columns = chunk.columns
    if "episode/group_end" in columns:
        told: NDArray[np.bool_] = columns["episode/group_end"] > GroupEnd.CONTINUES
        return told
    if "group" not in columns or "group_end" not in columns:
        return np.zeros(chunk.episodes, np.bool_)
    over = (columns["group"] != 0) & (columns["group_end"] > GroupEnd.CONTINUES)
    ended = set(zip(columns["agent"][over].tolist(), columns["episode"][over].tolist(), strict=True))
    records = zip(columns["episode/agent"].tolist(), columns["episode/episode"].tolist(), strict=True)
    return np.array([record in ended for record in records], np.bool_)


def extrinsic_strength(settings: TrainerSettings) -> float:
    """Returns the strength of the extrinsic reward signal; 0 without it."""
    extrinsic = settings.reward_signals.extrinsic
    return 0.0 if extrinsic is None else extrinsic.strength


class EpisodeRewards:
    """Computes the mean sums of rewards per episode.

    ML-Agents adds up the rewards of each agent until its episode ends. Here the rewards of all steps are added up until
    an episode has ended, and divided by the number of ended episodes. Weighted with this number, these means average to
    the mean of ML-Agents, except for the episodes that run at the beginning and at the end. Dropped steps count neither
    as rewards nor as ends.

    Attributes:
        episodes: Number of episodes in the last means.
    """

    def __init__(self) -> None:
        self.episodes = 0
        self._sums: dict[str, float] = {}

    def add(self, sums: Mapping[str, float], ended: int) -> Mapping[str, float]:
        """Adds the steps of an update.

        Args:
            sums: Sums of rewards over these steps, by signal.
            ended: Number of episodes that ended with one of these steps.

        Returns:
            Rewards per episode by signal, over the steps since an episode last ended; empty if none ended now.
        """
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        if not ended:
            return {}
        self.episodes = ended
        means = {name: value / ended for name, value in self._sums.items()}
        self._sums.clear()
        return means
