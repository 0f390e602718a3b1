"""Tests the environments of the gates."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from deploy.examples.memory.masked_cartpole import make
from deploy.examples.pixels.catch import CELL_PIXELS, CELLS, Catch
from tests.tools.gates.environments.combination import Combination
from tests.tools.gates.environments.docking import STEPS, Docking
from tests.tools.gates.environments.sorting import FEWEST, MOST, NUMBERS, WIDTH, Sorting


@pytest.mark.parametrize("made", [Catch, Combination, Docking, lambda: Sorting(attention=False)])
def test_environments_keep_gymnasiums_rules(made: Any) -> None:
    """Gymnasium's checker accepts spaces, seeds and types."""
    check_env(made(), skip_render_check=True)


def played(env: gymnasium.Env[Any, Any], policy: Any, seed: int) -> float:
    """Plays an episode and returns its return."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, _ = env.step(policy(observation))
        total += float(reward)
        over = terminated or truncated
    return total


@pytest.mark.parametrize("length", [3, 12])
def test_one_sequence_opens_the_lock(length: int) -> None:
    """Every position has one right digit; the last one brings the lock's share of the longest."""
    env, digits = Combination(), list[int]()

    def begin() -> float:
        env.reset(options={"parameters": {"length": float(length)}})
        return sum((float(env.step(np.int64(digit))[1]) for digit in digits), 0.0)

    for _ in range(length):
        found = []
        for digit in range(4):
            begin()
            _, reward, over, _, _ = env.step(np.int64(digit))
            found += [digit] if reward or not over else []
        assert len(found) == 1
        digits += found
    assert begin() == length / 12


def test_every_ball_can_be_caught_by_who_looks() -> None:
    """A policy that reads ball and paddle from the pixels catches all; one that stays catches few."""

    def follow(picture: Any) -> int:
        cells = picture[::CELL_PIXELS, ::CELL_PIXELS, 0]
        paddle = int(np.flatnonzero(cells[-1] == 160).mean())
        ball = int(np.argwhere(cells == 255)[0, 1])
        return int(np.sign(ball - paddle)) + 1

    env = Catch()
    assert [played(env, follow, seed) for seed in range(50)] == [1.0] * 50
    assert np.mean([played(env, lambda _: 1, seed) for seed in range(50)]) < 0.0


def test_a_catch_takes_twenty_steps() -> None:
    """A catch takes twenty steps."""
    env = Catch()
    env.reset(seed=1)
    ends = [env.step(np.int64(1))[2] for _ in range(CELLS - 1)]
    assert ends == [False] * (CELLS - 2) + [True]


def test_the_masked_cartpole_shows_no_velocity() -> None:
    """The masked CartPole shows position and angle only."""
    masked, plain = make(), gymnasium.make("CartPole-v1")
    assert masked.reset(seed=4)[0].tolist() == plain.reset(seed=4)[0][[0, 2]].tolist()
    assert masked.step(1)[0].tolist() == plain.step(1)[0][[0, 2]].tolist()


def test_a_buoy_counts_for_a_craft_that_is_near_and_slow() -> None:
    """A buoy counts if the craft is near and slow, and the next one appears elsewhere."""
    env = Docking()
    env.reset(seed=1)
    env._position, env._velocity, env._buoy = np.zeros(2), np.zeros(2), np.array([0.1, 0.0])
    _, reward, *_ = env.step(np.array([1, 2, 1]))
    assert reward == pytest.approx(1.0)
    assert env._buoy.tolist() != [0.1, 0.0]
    _, there, *_ = env.step(np.array([1, 4, 1]))
    assert abs(there) < 0.1


def test_docking_is_cut_and_never_ends() -> None:
    """An episode of docking is truncated after 200 steps."""
    env = Docking()
    env.reset(seed=1)
    ends = [env.step(np.array([1, 2, 1]))[2:4] for _ in range(STEPS)]
    assert ends == [(False, False)] * (STEPS - 1) + [(False, True)]


@pytest.mark.parametrize("attention", [True, False])
def test_tiles_are_sorted_by_who_takes_the_smallest(attention: bool) -> None:
    """Taking the smallest tile each time returns 1, and a wrong one ends the episode."""

    def smallest(view: Any) -> int:
        tiles = view.reshape(-1, WIDTH)
        return int(np.flatnonzero(tiles[:, :NUMBERS].any(0)).min())

    env = Sorting(attention)
    assert played(env, smallest, 3) == pytest.approx(1.0)
    view, _ = env.reset(seed=5)
    _, reward, over, *_ = env.step(np.int64((smallest(view) + 1) % NUMBERS))
    assert (reward, over) == (0.0, True)


def test_tiles_are_few_or_many() -> None:
    """The lists have all lengths between minimum and maximum, within their space."""
    env = Sorting()
    lengths = set()
    for seed in range(60):
        view, _ = env.reset(seed=seed)
        assert env.observation_space.contains(view)
        lengths.add(len(view))
    assert lengths == set(range(FEWEST, MOST + 1))
