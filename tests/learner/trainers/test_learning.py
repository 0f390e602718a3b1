"""Tests that SAC learns, with every kind of action."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.trajectories import Chunk

from learner.networks.squashed import SquashedPolicyNetwork
from tests.learner.networks.specs import vector
from tests.learner.trainers.in_process import Bench
from tests.learner.trainers.sac.started import make, settle

HYPER = {"batch_size": 64, "buffer_size": 5000, "learning_rate": 3e-3, "steps_per_update": 4, "buffer_init_steps": 100}
KINDS = {
    "continuous": ActionSpec(continuous_size=2),
    "discrete": ActionSpec(discrete_branches=(3, 2)),
    "hybrid": ActionSpec(continuous_size=1, discrete_branches=(3, 2)),
}


def right_actions(states: NDArray[Any], action: ActionSpec) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the best actions in states ``[B, 2]``."""
    continuous = 0.8 * states[:, : action.continuous_size]
    choices = np.stack([(states[:, 0] > 0) * 2, states[:, 1] > 0], axis=1)[:, : len(action.discrete_branches)]
    return continuous, choices


def rewards_of(
    states: NDArray[Any], actions: NDArray[Any] | None, choices: NDArray[Any] | None, action: ActionSpec
) -> NDArray[Any]:
    """Returns 1 for the best action, less by squared distances and wrong choices."""
    wanted, chosen = right_actions(states, action)
    reward = np.ones(len(states), np.float32)
    if actions is not None:
        reward -= ((actions - wanted) ** 2).mean(axis=1)
    if choices is not None:
        reward -= (choices != chosen).mean(axis=1)
    return reward.astype(np.float32)


class Bandit:
    """Plays episodes of one step in random states with the published policy.

    Args:
        bench: Where policies come from and chunks go.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._action = bench.behavior.spec.action
        self._rng = np.random.default_rng(1)
        self._policy = SquashedPolicyNetwork(bench.behavior.spec, bench.behavior.settings.network_settings)

    @torch.no_grad()
    def act(self, states: NDArray[Any], *, greedy: bool) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Draws, or takes the modes of, raw continuous actions and choices."""
        self._policy.load_state_dict(self._bench.published.state)
        mean, log_std, logits, _ = self._policy([torch.from_numpy(states)])
        raw = choices = None
        if mean is not None and log_std is not None:
            noise = self._rng.normal(size=mean.shape) * (not greedy)
            raw = (mean.numpy() + log_std.exp().numpy() * noise).astype(np.float32)
        if logits is not None:
            noisy = logits.numpy() + self._rng.gumbel(size=logits.shape) * (not greedy)
            bounds = np.cumsum(self._action.discrete_branches)[:-1]
            choices = np.stack([part.argmax(1) for part in np.split(noisy, bounds, axis=1)], 1).astype(np.int32)
        return raw, choices

    def chunk(self, steps: int) -> Chunk:
        """Plays so many episodes."""
        states = self._rng.uniform(-1.0, 1.0, (steps, 2)).astype(np.float32)
        raw, choices = self.act(states, greedy=False)
        columns: dict[str, NDArray[Any]] = {
            "obs/state": states,
            "final_obs/state": np.zeros((steps, 2), np.float32),
            "log_prob": np.zeros((steps, self._action.factors), np.float32),
            "reward": rewards_of(states, None if raw is None else np.tanh(raw), choices, self._action),
            "length": np.ones(steps, np.uint32),
            "first_step": np.zeros(steps, np.uint32),
            "end": np.full(steps, SegmentEnd.TERMINATED, np.uint8),
        }
        columns |= {} if raw is None else {"continuous_action": raw}
        columns |= {} if choices is None else {"discrete_action": choices}
        version = self._bench.published.progress[-1].version
        return Chunk(generation=1, base_version=version, segments=steps, rows=steps, columns=columns)

    def greedy_reward(self) -> float:
        """Returns the mean reward of the most likely actions."""
        states = self._rng.uniform(-1.0, 1.0, (500, 2)).astype(np.float32)
        raw, choices = self.act(states, greedy=True)
        return float(rewards_of(states, None if raw is None else np.tanh(raw), choices, self._action).mean())


@pytest.mark.parametrize("kind", KINDS)
def test_the_right_actions_are_found(kind: str) -> None:
    """Within 2,000 steps the reward rises from about 0.5 to 0.95 of 1."""
    spec = BehaviorSpec("Bandit", (vector("state", 2),), KINDS[kind])
    network = {"hidden_units": 32, "activation": "relu", "normalize": False}
    bench, trainer = make(spec, hyper=HYPER, network=network)
    bandit = Bandit(bench)
    before = bandit.greedy_reward()
    while trainer.get_step < 2000:
        bench.put(bandit.chunk(100))
        settle(trainer)
    trainer.finish()
    assert before < 0.9
    assert bandit.greedy_reward() > 0.95
    assert trainer.version == 475
    assert bench.ledger.books("Bandit").balanced
