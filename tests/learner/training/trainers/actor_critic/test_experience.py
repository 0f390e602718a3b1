"""Compares values, advantages and returns of an update with loops over segments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from rollcast.enums import SegmentEnd
from rollcast.trajectories import Chunk

from learner.training.trainers.ppo.trainer import PPOTrainer
from tests.learner.training.trainers.in_process import make_bench
from tests.learner.training.trainers.segments import experience_of, loop, of_chunk, of_steps
from tests.learner.training.trainers.started import single_network
from tests.learner.training.trainers.synthetic import HYBRID, SyntheticActor

GAMMA, LAMBD = 0.95, 0.9
SETTINGS: dict[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"buffer_size": 1000, "batch_size": 16, "lambd": LAMBD, "normalize_values": False},
    "network_settings": {"hidden_units": 8},
    "reward_signals": {"extrinsic": {"gamma": GAMMA, "strength": 0.5}},
    "time_horizon": 40,
}
LENGTHS = [7, 1, 40, 3, 2, 1]


def collected(settings: dict[str, Any], lengths: list[int], **columns: Any) -> tuple[PPOTrainer, Chunk]:
    """Returns a trainer that has collected one chunk."""
    bench = make_bench(settings, HYBRID)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    chunk = SyntheticActor(bench).chunk(lengths, columns=columns)
    bench.put(chunk)
    trainer.collect()
    return trainer, chunk


@pytest.mark.parametrize("at_once", [3, 4096])
def test_an_update_sees_what_a_loop_over_segments_computes(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns and normalized advantages equal those of the loops, for any segments."""
    monkeypatch.setattr("learner.training.trainers.actor_critic.experience._ROWS_AT_ONCE", at_once)
    trainer, chunk = collected(SETTINGS, LENGTHS)
    given = of_chunk(trainer, chunk, [GAMMA], 0.5 * chunk.columns["reward"].astype(np.float64)[:, None])
    experience = experience_of(trainer)
    expected = of_steps(given, loop(given, LAMBD, 1.0, 1.0).advantages)
    advantages, returns = (experience.sources[name].values.numpy() for name in ("advantage", "returns"))
    np.testing.assert_allclose(expected + of_steps(given, given.values), returns, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose((expected - expected.mean()) / expected.std(), advantages, rtol=1e-3, atol=1e-4)
    assert experience.steps == sum(LENGTHS)
    assert experience.lag.tolist() == [0] * sum(LENGTHS)
    assert experience.rewards.tolist() == pytest.approx([0.5 * float(chunk.columns["reward"].sum())], rel=1e-4)


@pytest.mark.parametrize("normalize_values", [True, False])
def test_advantages_that_are_not_normalized_have_the_scale_of_values(*, normalize_values: bool) -> None:
    """Without normalization, advantages are divided by the standard deviation of the critic's targets."""
    hyper = {"normalize_values": normalize_values, "normalize_advantages": False}
    trainer, chunk = collected({**SETTINGS, "hyperparameters": {**SETTINGS["hyperparameters"], **hyper}}, LENGTHS)
    trainer.value_scale.merge(torch.tensor([[10.0], [-30.0]], dtype=torch.float64))
    experience = experience_of(trainer)
    with torch.no_grad():
        seen = [torch.from_numpy(chunk.columns[f"obs/{each.name}"]) for each in HYBRID.observations]
        outputs = single_network(trainer).values(seen).numpy()
    advantages, returns = (experience.sources[name].values.numpy() for name in ("advantage", "returns"))
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
    settings["hyperparameters"] = {**SETTINGS["hyperparameters"], "lambd": 0.0}
    ends = np.array([SegmentEnd.TERMINATED, SegmentEnd.CUT, SegmentEnd.CUT, SegmentEnd.TERMINATED], np.uint8)
    trainer, chunk = collected(settings, [7, 4, 9, 5], end=ends, first_step=np.array(first_steps, np.uint32))
    with torch.no_grad():
        seen = [torch.from_numpy(chunk.columns[f"obs/{each.name}"]) for each in HYBRID.observations]
        values = trainer.value_scale.values(single_network(trainer).values(seen))[:, 1].numpy()
    found = trainer.value_scale.values(experience_of(trainer).sources["returns"].values)[:, 1].numpy()
    expected = values[[0, 11]].mean() if 0 in first_steps else values.mean()
    np.testing.assert_allclose(
        found[[6, 24]], GAMMA * expected, rtol=1e-5
    )  # rnd rewards nothing before its first update
