"""CartPole through its own vector entry point and one by one: equal states and actions give equal segments."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.envs.classic_control.cartpole import CartPoleEnv, CartPoleVectorEnv
from numpy.typing import NDArray

from actor_client.envs.base import EnvBatch
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.rollout.vector.loop import LoopLimits, RolloutLoop
from tests.actor_client.rollout.harness import KeepingLink, KeepingSession, Piece, RulePolicy, pieces

ENVS = 4
TIME_LIMIT = 40
VECTOR_STEPS = 400


def first_state(env: int, episode: int) -> NDArray[np.float64]:
    """Where an episode begins, the same for both."""
    return np.random.default_rng((env, episode)).uniform(-0.05, 0.05, 4)


class SetCartPole(CartPoleEnv):
    """CartPole whose episodes begin at given states."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.episode = 0

    def reset(self, **arguments: Any) -> Any:
        """Begins at the state for the episode."""
        _, info = super().reset(**arguments)
        self.state = first_state(self.index, self.episode)
        self.episode += 1
        return np.array(self.state, np.float32), info


class SetCartPoleVector(CartPoleVectorEnv):
    """The vector entry point of CartPole, whose episodes begin at given states."""

    def __init__(self) -> None:
        super().__init__(num_envs=ENVS, max_episode_steps=TIME_LIMIT)
        self.episodes = np.zeros(ENVS, np.int64)
        self.state: Any

    def _begin(self, envs: Sequence[int]) -> None:
        for env in envs:
            self.state[:, env] = first_state(env, int(self.episodes[env]))
            self.episodes[env] += 1

    def reset(self, **arguments: Any) -> Any:
        """Begins everywhere."""
        _, info = super().reset(**arguments)
        self._begin(range(ENVS))
        return self.state.T.astype(np.float32), info

    def step(self, action: Any) -> Any:
        """Begins where the last step ended."""
        over = np.flatnonzero(self.prev_done).tolist()
        _, *rest = super().step(action)
        self._begin(over)
        return (self.state.T.astype(np.float32), *rest)


def lean(observations: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Pushes towards where the pole leans: some episodes end early, some at the limit."""
    angle = observations[0][:, 2]
    return np.asarray(angle > 0, np.int32)


def by_env(batch: EnvBatch) -> tuple[dict[int, list[Piece]], KeepingLink]:
    """The segments of each environment after so many vector steps."""
    link = KeepingLink(batch.spec, time_horizon=7)
    link.policies.append(RulePolicy(batch.spec, rule=lean))
    limits = LoopLimits(max_steps=VECTOR_STEPS * ENVS)
    RolloutLoop(lambda: batch, batch, KeepingSession(), link, limits=limits).run()
    found: dict[int, list[Piece]] = defaultdict(list)
    for piece in pieces(link.chunks):
        found[piece.env].append(piece)
    return found, link


def test_both_ways_give_the_same_segments() -> None:
    """Lengths, ends, episodes, rows and final observations agree to float32 rounding; ignored rows are in neither."""
    scalar = ScalarBatch([gymnasium.wrappers.TimeLimit(SetCartPole(env), TIME_LIMIT) for env in range(ENVS)], "Pole")
    one_by_one, scalar_link = by_env(scalar)
    at_once, vector_link = by_env(VectorBatch(SetCartPoleVector(), "Pole"))

    assert scalar_link.books.view().produced == VECTOR_STEPS * ENVS
    ignored = sum(len(piece) == 0 or piece.first_step == 0 for piece in pieces(vector_link.chunks)) - ENVS
    assert vector_link.books.view().produced == VECTOR_STEPS * ENVS - ignored
    ends = set()
    for env in range(ENVS):
        common = min(len(one_by_one[env]), len(at_once[env])) - 1
        assert common > 20
        for expected, found in zip(one_by_one[env][:common], at_once[env][:common], strict=True):
            assert (expected.episode, expected.first_step, expected.end, expected.versions) == (
                found.episode,
                found.first_step,
                found.end,
                found.versions,
            )
            for name, rows in expected.rows.items():
                np.testing.assert_allclose(rows, found.rows[name], rtol=1e-5, atol=1e-6)
            final = expected.final["final_obs/obs"]
            assert final == pytest.approx(found.final["final_obs/obs"], rel=1e-5, abs=1e-6)
            ends.add(expected.end.name)
    assert ends == {"CUT", "TERMINATED", "TRUNCATED"}
