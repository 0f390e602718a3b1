"""Compares the carts of clients with those of Gymnasium."""

from __future__ import annotations

import random
import re
import subprocess

import gymnasium
import numpy as np

LINE = re.compile(r"-?\d")
STARTS = 5
"""Episodes that are compared."""


def compare(*command: str) -> None:
    """Checks that a cart goes as Gymnasium's does, until both fall.

    Args:
        command: Gets a state and pushes as further arguments, and prints a line after each push: the state, and 1 if the episode
            has ended. Other lines, as an engine's, begin with a letter or a blank.
    """
    env = gymnasium.make("CartPole-v1").unwrapped
    for seed in range(STARTS):
        env.reset(seed=seed)
        arguments = [str(value) for value in np.asarray(env.state, np.float64).tolist()]  # type: ignore[attr-defined]
        expected: list[list[float]] = []
        choose = random.Random(seed)
        ended = False
        while not ended:
            push = choose.randrange(2)
            arguments.append(str(push))
            seen, _, ended, _, _ = env.step(push)
            expected.append([*seen.tolist(), float(ended)])
        said = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True).stdout
        found = [[float(word) for word in line.split()] for line in said.splitlines() if LINE.match(line)]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-8)
