"""Compares values, advantages and returns of an update with loops over segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import SegmentEnd

from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.started import single_network
from tests.learner.trainers.synthetic import HYBRID, SyntheticActor

GAMMA, LAMBD = 0.95, 0.9
SETTINGS: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 1000, "batch_size": 16, "lambd": LAMBD, "normalize_values": False},
    "network_settings": {"hidden_units": 8},
    "reward_signals": {"extrinsic": {"gamma": GAMMA, "strength": 0.5}},
    "time_horizon": 40,
}
LENGTHS = [7, 1, 40, 3, 2, 1]


@pytest.mark.parametrize("at_once", [3, 4096])
def test_an_update_sees_what_a_loop_over_segments_computes(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns and normalized advantages equal those of the loops, for any segments."""
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
        values = (
            single_network(trainer)
            .values([torch.from_numpy(chunk.columns[f"obs/{name}"]) for name in names])[:, 0]
            .double()
        )
        finals = single_network(trainer).values(
            [torch.from_numpy(chunk.columns[f"final_obs/{name}"]) for name in names]
        )[:, 0]
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


@pytest.mark.parametrize("normalize_values", [True, False])
def test_advantages_that_are_not_normalized_have_the_scale_of_values(*, normalize_values: bool) -> None:
    """Without normalization, advantages are divided by the standard deviation of the critic's targets."""
    hyper = {"normalize_values": normalize_values, "normalize_advantages": False}
    bench = make_bench({**SETTINGS, "hyperparameters": {**SETTINGS["hyperparameters"], **hyper}}, HYBRID)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    trainer.value_scale.merge(torch.tensor([[10.0], [-30.0]], dtype=torch.float64))
    chunk = SyntheticActor(bench).chunk(LENGTHS)
    bench.put(chunk)
    trainer.collect()
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    experience = trainer._maker.make(plan, storage, trainer._maker.recorded(plan, storage, version=0))
    with torch.no_grad():
        seen = [torch.from_numpy(chunk.columns[f"obs/{each.name}"]) for each in HYBRID.observations]
        outputs = single_network(trainer).values(seen)[:, 0].numpy()
    advantages, returns = (experience.sources[name].values[:, 0].numpy() for name in ("advantage", "returns"))
    units = float(trainer.value_scale.scale[0] / trainer.value_scale.of_advantages())
    np.testing.assert_allclose(advantages, units * (returns - outputs), rtol=1e-4, atol=1e-5)
    assert (float(trainer.value_scale.scale[0]) != 1.0) == normalize_values


@pytest.mark.parametrize("first_steps", [[0, 3, 0, 7], [4, 3, 2, 7]])
def test_beyond_an_end_is_a_beginning(first_steps: list[int]) -> None:
    """Signals that ignore ends continue with the mean value of the episodes' first observations.

    Without any in the update, with that of all its observations; never with the value of a terminal observation, which
    the critic does not learn.
    """
    small = {"network_settings": {"hidden_units": 4}}
    settings = {**SETTINGS, "reward_signals": {"extrinsic": {"gamma": GAMMA}, "rnd": {"gamma": GAMMA, **small}}}
    bench = make_bench({**settings, "hyperparameters": {**SETTINGS["hyperparameters"], "lambd": 0.0}}, HYBRID)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    ends = np.array([SegmentEnd.TERMINATED, SegmentEnd.CUT, SegmentEnd.CUT, SegmentEnd.TERMINATED], np.uint8)
    columns = {"end": ends, "first_step": np.array(first_steps, np.uint32)}
    chunk = SyntheticActor(bench).chunk([7, 4, 9, 5], columns=columns)
    bench.put(chunk)
    trainer.collect()
    plan, storage = trainer.update_buffer.plan(), trainer.update_buffer.ring.storage
    with torch.no_grad():
        seen = [torch.from_numpy(chunk.columns[f"obs/{each.name}"]) for each in HYBRID.observations]
        values = trainer.value_scale.values(single_network(trainer).values(seen))[:, 1].numpy()
    made = trainer._maker.make(plan, storage, trainer._maker.recorded(plan, storage, version=0))
    found = trainer.value_scale.values(made.sources["returns"].values)[:, 1].numpy()
    expected = values[[0, 11]].mean() if 0 in first_steps else values.mean()
    np.testing.assert_allclose(
        found[[6, 24]], GAMMA * expected, rtol=1e-5
    )  # rnd rewards nothing before its first update
