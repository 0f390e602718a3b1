"""Counts the trainers' work: plain numbers that only grow, in the trainers' thread, and immutable copies of them.

`learner.service.metrics` exports the copies.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learner.shared.observe.behavior_state import GameView
from learner.shared.observe.values import (
    CHECKPOINT_SECONDS,
    EPISODE_RETURN,
    EPISODE_STEPS,
    EVALUATION_OUTCOMES,
    LAG_VERSIONS,
    SAVE_OUTCOMES,
    SKIP_REASONS,
    UPDATE_SECONDS,
    WAIT_SECONDS,
)


class Buckets(NamedTuple):
    """A histogram at one moment.

    Attributes:
        counts: ``[len(bounds) + 1]``, number of values in each bucket, the last one for values above all bounds.
        total: Sum of all values.
    """

    counts: tuple[float, ...]
    total: float = 0.0


def no_values(bounds: Sequence[float]) -> Buckets:
    """Returns an empty histogram."""
    return Buckets((0,) * (len(bounds) + 1))


class Histogram:
    """Counts single values.

    Args:
        bounds: Upper bounds of the buckets, ascending and finite; a value equal to one belongs to its bucket.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    @contextmanager
    def time(self) -> Iterator[None]:
        """Counts the duration of the block in seconds, also if it raises."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.observe(time.perf_counter() - began)

    def buckets(self) -> Buckets:
        """Returns the current counts."""
        return Buckets(tuple(self._counts), self._total)


class ArrayHistogram:
    """Counts values that arrive in arrays.

    Args:
        bounds: Upper bounds of the buckets, ascending and finite; a value equal to one belongs to its bucket.
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = np.asarray(bounds, np.float64)
        self._counts = np.zeros(len(bounds) + 1, np.float64)
        self._total = 0.0

    def observe(self, values: NDArray[Any], weights: NDArray[Any] | None = None) -> None:
        """Counts values, except NaN and infinite ones.

        Args:
            values: ``[K]``, any real dtype.
            weights: ``[K]``, count of each value; None counts each once.
        """
        flat = np.asarray(values, np.float64).reshape(-1)
        finite = np.isfinite(flat)
        chosen = None if weights is None else np.asarray(weights, np.float64).reshape(-1)
        if not finite.all():
            flat = flat[finite]
            chosen = None if chosen is None else chosen[finite]
        counts = np.bincount(np.searchsorted(self._bounds, flat, side="left"), chosen, minlength=len(self._counts))
        self.add(counts, float(flat.sum() if chosen is None else flat @ chosen))

    def add(self, counts: Sequence[float] | NDArray[Any], total: float) -> None:
        """Adds values that were counted elsewhere.

        Args:
            counts: ``[len(bounds) + 1]``, number of values in each bucket, the last one for values above all bounds.
            total: Sum of the values.
        """
        self._counts += counts
        self._total += total

    def buckets(self) -> Buckets:
        """Returns the current counts."""
        return Buckets(tuple(self._counts.tolist()), self._total)


PHASES: Final = ("stage", "assemble", "optimize", "publish")
"""Phases of an update."""


@dataclass(frozen=True, slots=True)
class BehaviorCounts:
    """Counts of a behavior since the learner started. `BehaviorMeters` describes each count.

    Attributes:
        phase_seconds: Seconds by `PHASES`.
        skipped_updates: Updates by `SKIP_REASONS`.
        evaluations: Evaluations by `EVALUATION_OUTCOMES`.
        measured: Newest evaluation results and best checkpoint, by names of `learner.shared.observe.behavior_state.FIELDS`.
        game: The newest game of an evaluation or a tournament; None before the first.
    """

    queue_wait: Buckets
    policy_lag: Buckets
    episode_return: Buckets
    episode_steps: Buckets
    batch_wait: Buckets
    phase_seconds: Mapping[str, Buckets]
    skipped_updates: Mapping[str, int]
    evaluations: Mapping[str, int]
    evaluation_episodes: int
    measured: Mapping[str, int | float]
    game: GameView | None = None


class BehaviorMeters:
    """Meters of one behavior.

    Args:
        return_buckets: Bounds of the histogram of returns.

    Attributes:
        queue_wait: Seconds from ack to trainer, per chunk.
        policy_lag: Policy lag in versions, per trained step.
        episode_return: Returns of training episodes.
        episode_steps: Lengths of training episodes, in steps.
        batch_wait: Seconds of each batch collection.
        stage, assemble, optimize, publish: Seconds of the phases, per update.
    """

    def __init__(self, return_buckets: Sequence[float] = EPISODE_RETURN) -> None:
        self.queue_wait = Histogram(WAIT_SECONDS)
        self.policy_lag = ArrayHistogram(LAG_VERSIONS)
        self.episode_return = ArrayHistogram(return_buckets)
        self.episode_steps = ArrayHistogram(EPISODE_STEPS)
        self.batch_wait = Histogram(WAIT_SECONDS)
        self.stage, self.assemble, self.optimize, self.publish = (Histogram(UPDATE_SECONDS) for _ in PHASES)
        self._skipped = dict.fromkeys(SKIP_REASONS, 0)
        self._evaluations = dict.fromkeys(EVALUATION_OUTCOMES, 0)
        self._evaluation_episodes = 0
        self._measured: dict[str, float] = {}
        self._game: GameView | None = None

    @property
    def lag_bounds(self) -> tuple[float, ...]:
        """Bounds of `policy_lag`, for code that counts on another device."""
        return LAG_VERSIONS

    def note_evaluation(self, episodes: int, *, is_complete: bool = True) -> None:
        """Counts an evaluation and its episodes."""
        self._evaluations["complete" if is_complete else "cut_short"] += 1
        self._evaluation_episodes += episodes

    def note_empty_evaluation(self) -> None:
        """Counts an evaluation that ended before any of its episodes."""
        self._evaluations["cut_short"] += 1

    def note_skipped(self, reason: str) -> None:
        """Counts a discarded update."""
        self._skipped[reason] += 1

    def show_evaluation(
        self, *, mean: float, std: float, step: int, length: float, games: Mapping[str, float] = MappingProxyType({})
    ) -> None:
        """Stores the result of an evaluation of the policy of a trainer step.

        Args:
            mean: Mean of the returns.
            std: Standard deviation of the returns.
            step: The trainer step.
            length: Mean length of the episodes, in steps.
            games: Numbers of its games against opponents, by their names in `FIELDS`.
        """
        self._measured |= {
            "evaluation_return_mean": mean,
            "evaluation_return_std": std,
            "evaluation_length_mean": length,
            "evaluation_step": step,
            **games,
        }

    def show_best(self, reward: float, step: int, principals: int = 0) -> None:
        """Stores which checkpoint is the best, and how many principals measured it."""
        self._measured |= {"best_return": reward, "best_step": step, "best_principals": principals}

    def show_game(self, game: GameView) -> None:
        """Stores the newest game of an evaluation or a tournament."""
        self._game = game

    def counts(self) -> BehaviorCounts:
        """Returns the current counts."""
        return BehaviorCounts(
            queue_wait=self.queue_wait.buckets(),
            policy_lag=self.policy_lag.buckets(),
            episode_return=self.episode_return.buckets(),
            episode_steps=self.episode_steps.buckets(),
            batch_wait=self.batch_wait.buckets(),
            phase_seconds={
                "stage": self.stage.buckets(),
                "assemble": self.assemble.buckets(),
                "optimize": self.optimize.buckets(),
                "publish": self.publish.buckets(),
            },
            skipped_updates=self._skipped.copy(),
            evaluations=self._evaluations.copy(),
            evaluation_episodes=self._evaluation_episodes,
            measured=self._measured.copy(),
            game=self._game,
        )


class CheckpointMeters:
    """Counts checkpoints: run states and models."""

    def __init__(self) -> None:
        self._seconds = Histogram(CHECKPOINT_SECONDS)
        self._outcomes = dict.fromkeys(SAVE_OUTCOMES, 0)
        # Starts now: the age of this time is that of the oldest progress that a crash could lose.
        self._last_run_state_at = time.time()

    def note_saved(self, seconds: float, *, is_run_state: bool) -> None:
        """Counts a written checkpoint and its duration."""
        self._outcomes["ok"] += 1
        self._seconds.observe(seconds)
        if is_run_state:
            self._last_run_state_at = time.time()

    def note_failed(self) -> None:
        """Counts a failed checkpoint."""
        self._outcomes["failed"] += 1

    def counts(self) -> CheckpointCounts:
        """Returns the current counts."""
        return CheckpointCounts(self._outcomes.copy(), self._seconds.buckets(), self._last_run_state_at)


@dataclass(frozen=True, slots=True)
class CheckpointCounts:
    """Counts of checkpoints since the learner started.

    Attributes:
        outcomes: Checkpoints by `SAVE_OUTCOMES`.
        seconds: Seconds to write each checkpoint.
        last_run_state_at: When the last run state was written, or the learner started; seconds since the epoch.
    """

    outcomes: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(SAVE_OUTCOMES, 0))
    seconds: Buckets = field(default_factory=lambda: no_values(CHECKPOINT_SECONDS))
    last_run_state_at: float = 0.0


@dataclass(frozen=True, slots=True)
class RunCounts:
    """Counts of a run since the learner started.

    Attributes:
        behaviors: Counts by behavior name.
        checkpoints: Counts of run states and models.
        writer_failures: Failures to write statistics, by type of the writer.
    """

    behaviors: Mapping[str, BehaviorCounts] = field(default_factory=dict)
    checkpoints: CheckpointCounts = field(default_factory=CheckpointCounts)
    writer_failures: Mapping[str, int] = field(default_factory=dict)


class RunMeters:
    """Meters of a run.

    Args:
        return_buckets: Bounds of the histograms of returns.

    Attributes:
        checkpoints: Meters of run states and models.
    """

    def __init__(self, return_buckets: Iterable[float] = EPISODE_RETURN) -> None:
        self.checkpoints = CheckpointMeters()
        self._return_buckets = tuple(return_buckets)
        self._behaviors: dict[str, BehaviorMeters] = {}
        self._writer_failures: dict[str, int] = {}

    def behavior(self, name: str) -> BehaviorMeters:
        """Returns the meters of one behavior; creates them if there are none."""
        if name not in self._behaviors:
            self._behaviors[name] = BehaviorMeters(self._return_buckets)
        return self._behaviors[name]

    def declare_stats_writers(self, writers: Iterable[object]) -> None:
        """Creates the counters of the run's writers."""
        for writer in writers:
            self._writer_failures.setdefault(_writer_name(writer), 0)

    def stats_writer_failed(self, writer: object) -> None:
        """Counts a failure of a writer."""
        name = _writer_name(writer)
        self._writer_failures[name] = self._writer_failures.get(name, 0) + 1

    def counts(self) -> RunCounts:
        """Returns the current counts."""
        return RunCounts(
            {name: meters.counts() for name, meters in self._behaviors.items()},
            self.checkpoints.counts(),
            self._writer_failures.copy(),
        )


def _writer_name(writer: object) -> str:
    """Returns ``tensorboard`` for a TensorBoardWriter. Writers are named in the run file, so there are few."""
    return type(writer).__name__.removesuffix("Writer").lower()
