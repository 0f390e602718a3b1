"""Computes statistics over seeds: interquartile means, bootstrap intervals and probabilities of improvement.

The formulas are those of Agarwal et al. (2021), "Deep reinforcement learning at the edge of the statistical precipice",
arXiv:2108.13264, section 4. Runs of several tasks are resampled within each task (a stratified bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
Tasks = Sequence[Scores]
"""Scores of the runs of one group: an array ``[N_m]`` for each of M tasks."""

CONFIDENCE = 0.95
REPLICATES = 10_000
_TAILS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_SEED = 0
"""Seed of the resampling, fixed so that equal runs have equal intervals."""
_TRIMMED = 0.25


@dataclass(frozen=True, slots=True)
class Interval:
    """A percentile bootstrap interval of 95 %."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Band:
    """Interquartile means over seeds at P points, with their intervals.

    Attributes:
        iqm: ``[P]``.
        low: ``[P]``.
        high: ``[P]``.
    """

    iqm: Scores
    low: Scores
    high: Scores


def interquartile_mean(scores: Scores) -> Scores:
    """Returns the means ``[...]`` of the middle half of scores ``[..., N]``.

    As in ``scipy.stats.trim_mean(scores, 0.25)``, the largest and the smallest N / 4 scores, rounded down, are left out:
    none of 3, one of 5 on each side.
    """
    count = scores.shape[-1]
    cut = int(_TRIMMED * count)
    middle: Scores = np.sort(scores, axis=-1)[..., cut : count - cut].mean(-1)
    return middle


def iqm(tasks: Tasks) -> float:
    """Returns the interquartile mean of the scores of all tasks together."""
    return float(interquartile_mean(np.concatenate(tasks)))


def iqm_interval(tasks: Tasks) -> Interval | None:
    """Returns the interval of `iqm`; None if no task has two runs."""
    if all(len(scores) < 2 for scores in tasks):
        return None
    random = np.random.default_rng(_SEED)
    resampled = [scores[random.integers(len(scores), size=(REPLICATES, len(scores)))] for scores in tasks]
    return _limits(interquartile_mean(np.concatenate(resampled, axis=-1)))


def improvement(tasks: Tasks, others: Tasks) -> float:
    """Returns the probability that a run scores more than a run of another group, averaged over tasks.

    A tie counts as one half.

    Args:
        tasks: Scores of one group.
        others: Scores of the other group, with the tasks in the same order.
    """
    return float(np.mean([_wins(scores, other).mean() for scores, other in zip(tasks, others, strict=True)]))


def improvement_interval(tasks: Tasks, others: Tasks) -> Interval | None:
    """Returns the interval of `improvement`; None if no task has two runs in either group."""
    if all(len(scores) < 2 for scores in (*tasks, *others)):
        return None
    random = np.random.default_rng(_SEED)
    total = np.zeros(REPLICATES)
    for scores, other in zip(tasks, others, strict=True):
        rows, columns = _drawn(random, len(scores)), _drawn(random, len(other))
        total += ((rows @ _wins(scores, other)) * columns).sum(1) / (len(scores) * len(other))
    return _limits(total / len(tasks))


def band(curves: Scores) -> Band:
    """Returns the interquartile mean of curves ``[N, P]`` at each point, with intervals.

    Whole runs are resampled, the same ones at all points.
    """
    runs = np.random.default_rng(_SEED).integers(len(curves), size=(REPLICATES, len(curves)))
    low, high = np.array([np.quantile(interquartile_mean(point[runs]), _TAILS) for point in curves.T]).T
    return Band(interquartile_mean(curves.T), low, high)


def _wins(scores: Scores, others: Scores) -> Scores:
    """Returns ``[N, K]``: 1 if a score is above another group's, 0.5 if they are equal, otherwise 0."""
    return np.heaviside(scores[:, None] - others[None, :], 0.5)


def _drawn(random: np.random.Generator, count: int) -> NDArray[np.int64]:
    """Returns how often each of N runs is drawn in each replicate, ``[R, N]``."""
    return random.multinomial(count, np.full(count, 1 / count), size=REPLICATES)


def _limits(values: Scores) -> Interval:
    low, high = np.quantile(values, _TAILS)
    return Interval(float(low), float(high))
