"""Compares the carts of clients with those of Gymnasium."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import gymnasium
import numpy as np

STARTS = 5
"""Episodes that are compared."""


def compare(pushed: Callable[[Sequence[float], Sequence[int]], str]) -> None:
    """Checks that a cart goes as Gymnasium's does, until both fall.

    Args:
        pushed: Returns, for a state and pushes, a line after each push: the state, and 1 if the episode has ended.
    """
    env = gymnasium.make("CartPole-v1").unwrapped
    for seed in range(STARTS):
        env.reset(seed=seed)
        start = np.asarray(env.state, np.float64).tolist()  # type: ignore[attr-defined]
        pushes: list[int] = []
        expected: list[list[float]] = []
        choose = random.Random(seed)
        ended = False
        while not ended:
            pushes.append(choose.randrange(2))
            seen, _, ended, _, _ = env.step(pushes[-1])
            expected.append([*seen.tolist(), float(ended)])
        lines = pushed(start, pushes).splitlines()
        np.testing.assert_allclose([[float(word) for word in line.split()] for line in lines], expected, rtol=1e-5)
