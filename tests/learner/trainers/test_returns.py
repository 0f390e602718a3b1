"""Advantages as one flat scan, against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.trainers.returns import generalized_advantages, reverse_affine_scan

GAMMA, LAMBD = 0.9, 0.8


def loop_of_scan(delta: NDArray[np.float64], coefficient: NDArray[np.float64]) -> NDArray[np.float64]:
    """The recursion, step by step."""
    found = np.zeros_like(delta)
    following = np.zeros_like(delta[0])
    for row in reversed(range(len(delta))):
        following = found[row] = delta[row] + coefficient[row] * following
    return found


@pytest.mark.parametrize("lengths", [[1], [2], [5, 1, 1, 8], [64] * 10, [1] * 30, [1000, 3], [7, 129]])
@pytest.mark.parametrize("signals", [1, 3])
def test_the_scan_equals_the_loop(lengths: list[int], signals: int) -> None:
    """Segments of any length, side by side, give what a loop over each gives."""
    rng = np.random.default_rng(sum(lengths))
    delta = rng.normal(size=(sum(lengths), signals))
    coefficient = rng.uniform(0.5, 1.0, (sum(lengths), signals))
    coefficient[np.cumsum(lengths) - 1] = 0.0
    found = reverse_affine_scan(torch.from_numpy(delta), torch.from_numpy(coefficient), max(lengths))
    np.testing.assert_allclose(loop_of_scan(delta, coefficient), found.numpy(), rtol=1e-12, atol=1e-12)


def advantages(rewards: list[float], values: list[float], *, steps: int, terminated: bool) -> list[float]:
    """Advantages of one segment whose last value is that of the final observation."""
    is_step = [1.0] * steps + [0.0]
    continues = [1.0] * (steps - 1) + [0.0, 0.0]
    bootstraps = [*continues[:-2], 0.0 if terminated else 1.0, 0.0]
    found = generalized_advantages(
        column([*rewards, 0.0]),
        column(values),
        is_step=flat(is_step),
        bootstraps=flat(bootstraps),
        continues=flat(continues),
        gamma=flat([GAMMA]),
        lambd=LAMBD,
        longest=steps + 1,
    )
    numbers: list[float] = found[:, 0].tolist()
    return numbers


def flat(numbers: list[float]) -> Tensor:
    """A float64 vector."""
    return torch.tensor(numbers, dtype=torch.float64)


def column(numbers: list[float]) -> Tensor:
    """A float64 column."""
    return flat(numbers).unsqueeze(1)


def test_a_truncated_or_cut_segment_bootstraps() -> None:
    """The value of the final observation enters the last temporal difference, and through it all others."""
    first = 1.0 + GAMMA * 20.0 - 10.0
    second = 2.0 + GAMMA * 30.0 - 20.0
    expected = [first + GAMMA * LAMBD * second, second, 0.0]
    found = advantages([1.0, 2.0], [10.0, 20.0, 30.0], steps=2, terminated=False)
    np.testing.assert_allclose(expected, found, rtol=1e-12)


def test_a_terminated_segment_does_not_bootstrap() -> None:
    """Behind a terminal step there is nothing, whatever the critic says of it."""
    second = 2.0 - 20.0
    expected = [1.0 + GAMMA * 20.0 - 10.0 + GAMMA * LAMBD * second, second, 0.0]
    found = advantages([1.0, 2.0], [10.0, 20.0, 1e9], steps=2, terminated=True)
    np.testing.assert_allclose(expected, found, rtol=1e-12)


def test_signals_have_their_own_discounts_and_ends() -> None:
    """Each signal is its own recursion; one that ignores ends bootstraps at a terminal step too."""
    rewards, values = torch.ones(2, 2, dtype=torch.float64), torch.full((2, 2), 10.0, dtype=torch.float64)
    found = generalized_advantages(
        rewards,
        values,
        is_step=flat([1.0, 0.0]),
        bootstraps=torch.tensor([[0.0, 1.0], [0.0, 0.0]], dtype=torch.float64),
        continues=flat([0.0, 0.0]),
        gamma=flat([0.9, 0.5]),
        lambd=LAMBD,
        longest=2,
    )
    assert found.tolist() == [[1.0 - 10.0, 1.0 + 0.5 * 10.0 - 10.0], [0.0, 0.0]]
