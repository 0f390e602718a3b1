"""Values, advantages and returns of an update, against loops over segments."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rollcast.enums import SegmentEnd

from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.synthetic import HYBRID, SyntheticActor

GAMMA, LAMBD = 0.95, 0.9
SETTINGS = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 1000, "batch_size": 16, "lambd": LAMBD},
    "network_settings": {"hidden_units": 8},
    "reward_signals": {"extrinsic": {"gamma": GAMMA, "strength": 0.5}},
    "time_horizon": 40,
}
LENGTHS = [7, 1, 40, 3, 2, 1]


@pytest.mark.parametrize("at_once", [3, 4096])
def test_an_update_sees_what_a_loop_over_segments_computes(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns and normalized advantages equal the textbook's, whatever the segments are and however values are computed."""
    monkeypatch.setattr("learner.trainers.actor_critic.experience._ROWS_AT_ONCE", at_once)
    bench = make_bench(SETTINGS, HYBRID)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    chunk = SyntheticActor(bench).chunk(LENGTHS)
    bench.put(chunk)
    trainer.collect()
    buffer = trainer.update_buffer
    plan, storage = buffer.plan(), buffer.ring.storage
    experience = trainer._maker.make(plan, storage, trainer._maker.recorded(plan, storage, version=3))
    names = [observation.name for observation in HYBRID.observations]
    with torch.no_grad():
        values = trainer.network.values([torch.from_numpy(chunk.columns[f"obs/{name}"]) for name in names])[
            :, 0
        ].double()
        finals = trainer.network.values([torch.from_numpy(chunk.columns[f"final_obs/{name}"]) for name in names])[:, 0]
    expected: list[float] = []
    first = 0
    for segment, length in enumerate(LENGTHS):
        following = 0.0 if chunk.columns["end"][segment] == SegmentEnd.TERMINATED else float(finals[segment])
        trace = 0.0
        found = []
        for row in reversed(range(first, first + length)):
            delta = 0.5 * float(chunk.columns["reward"][row]) + GAMMA * following - float(values[row])
            trace = delta + GAMMA * LAMBD * trace
            found.append(trace)
            following = float(values[row])
        expected += reversed(found)
        first += length
    advantages = np.array(expected)
    returns = experience.sources["returns"].values[:, 0].numpy()
    normalized = experience.sources["advantage"].values[:, 0].numpy()
    np.testing.assert_allclose(advantages + values.numpy(), returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((advantages - advantages.mean()) / advantages.std(), normalized, rtol=1e-3, atol=1e-4)
    assert experience.steps == sum(LENGTHS)
    assert experience.lag.tolist() == [3] * sum(LENGTHS)
    assert experience.rewards.tolist() == pytest.approx([0.5 * float(chunk.columns["reward"].sum())], rel=1e-4)
