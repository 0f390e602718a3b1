"""Tests that SAC with memory solves a task that needs it."""

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

STEPS = 4
SPEC = BehaviorSpec("Recall", (vector("state", 2),), ActionSpec(discrete_branches=(2,)))


class Recall:
    """Shows a cue in the first step; the last choice is worth 1 if it equals the cue, else -1.

    Args:
        bench: Where policies come from.
        memory_size: Of the policy; 0 = none.
    """

    def __init__(self, bench: Bench, memory_size: int) -> None:
        self._bench = bench
        self._memory_size = memory_size
        self._rng = np.random.default_rng(3)
        self._policy = SquashedPolicyNetwork(SPEC, bench.behavior.settings.network_settings)

    def greedy(self, episodes: int = 300) -> float:
        """Returns the mean return of the most likely choices."""
        columns = self._play(episodes, greedy=True)
        return float(columns["reward"].sum()) / episodes

    def chunk(self, episodes: int) -> Chunk:
        """Plays so many."""
        columns = self._play(episodes, greedy=False)
        version, rows = self._bench.published.progress[-1].version, episodes * STEPS
        return Chunk(generation=1, base_version=version, segments=episodes, rows=rows, columns=columns)

    @torch.no_grad()
    def _play(self, episodes: int, *, greedy: bool) -> dict[str, NDArray[Any]]:
        self._policy.load_state_dict(self._bench.published.state)
        cues = self._rng.integers(0, 2, episodes)
        states = np.zeros((episodes, STEPS, 2), np.float32)
        states[:, 0, 0], states[:, -1, 1] = 2 * cues - 1, 1.0
        memory = torch.zeros(episodes, self._memory_size) if self._memory_size else None
        columns: dict[str, NDArray[Any]] = {} if memory is None else {"memory": memory.numpy()}
        choices = np.zeros((episodes, STEPS), np.int32)
        for step in range(STEPS):
            _, _, logits, memory = self._policy([torch.from_numpy(states[:, step])], None, memory)
            assert logits is not None
            choices[:, step] = (logits.numpy() + self._rng.gumbel(size=logits.shape) * (not greedy)).argmax(1)
        rewards = np.zeros((episodes, STEPS), np.float32)
        rewards[:, -1] = np.where(choices[:, -1] == cues, 1.0, -1.0)
        return {
            **columns,
            "obs/state": states.reshape(-1, 2),
            "final_obs/state": np.zeros((episodes, 2), np.float32),
            "discrete_action": choices.reshape(-1, 1),
            "log_prob": np.zeros((episodes * STEPS, 1), np.float32),
            "reward": rewards.reshape(-1),
            "length": np.full(episodes, STEPS, np.uint32),
            "first_step": np.zeros(episodes, np.uint32),
            "end": np.full(episodes, SegmentEnd.TERMINATED, np.uint8),
        }


@pytest.mark.parametrize("memory_size", [8, 0])
def test_a_cue_is_remembered(memory_size: int) -> None:
    """Within 1,000 steps SAC with memory answers the cue, and without it does not."""
    memory = {"memory_size": memory_size, "sequence_length": 2 * STEPS} if memory_size else None
    bench, trainer = make(
        SPEC,
        hyper={
            "batch_size": 128,
            "buffer_size": 5000,
            "learning_rate": 3e-3,
            "steps_per_update": 4,
            "buffer_init_steps": 200,
            "init_entcoef": 0.1,
            "tau": 0.02,
        },
        network={"num_layers": 1, "normalize": False, "memory": memory},
        reward_signals={"extrinsic": {"gamma": 0.9}},
    )
    recall = Recall(bench, memory_size)
    while trainer.get_step < 1000:
        bench.put(recall.chunk(25))
        settle(trainer)
    trainer.finish()
    if memory_size:
        assert recall.greedy() > 0.9
    else:
        assert abs(recall.greedy()) < 0.3
