"""Compares advantages and returns as a flat scan with loops and hand-worked cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from rollcast.trajectories import Chunk
from torch import Tensor

from learner.training.trainers.actor_critic.targets import GeneralizedAdvantages, VTraceTargets, reverse_affine_scan
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer
from learner.training.trainers.appo.trainer import APPOTrainer
from learner.training.trainers.impala.trainer import IMPALATrainer
from tests.learner.training.trainers.segments import (
    Array,
    Segments,
    experience_of,
    loop,
    of_chunk,
    of_steps,
    segments,
)
from tests.learner.training.trainers.started import feed, make_kind
from tests.learner.training.trainers.synthetic import HYBRID, SyntheticActor

GAMMA, LAMBD = 0.9, 0.8


def loop_of_scan(delta: NDArray[np.float64], coefficient: NDArray[np.float64]) -> NDArray[np.float64]:
    """Computes the recursion step by step."""
    found = np.zeros_like(delta)
    following = np.zeros_like(delta[0])
    for row in reversed(range(len(delta))):
        following = found[row] = delta[row] + coefficient[row] * following
    return found


@pytest.mark.parametrize("lengths", [[1], [2], [5, 1, 1, 8], [64] * 10, [1] * 30, [1000, 3], [7, 129]])
@pytest.mark.parametrize("signals", [1, 3])
def test_the_scan_equals_the_loop(lengths: list[int], signals: int) -> None:
    """The scan equals the loop for segments of any length."""
    rng = np.random.default_rng(sum(lengths))
    delta = rng.normal(size=(sum(lengths), signals))
    coefficient = rng.uniform(0.5, 1.0, (sum(lengths), signals))
    coefficient[np.cumsum(lengths) - 1] = 0.0
    found = reverse_affine_scan(torch.from_numpy(delta), torch.from_numpy(coefficient), max(lengths))
    np.testing.assert_allclose(loop_of_scan(delta, coefficient), found.numpy(), rtol=1e-12, atol=1e-12)


LAMBDAS = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0.0, 1.0))


def assert_close(expected: Array, found: Tensor, given: Segments) -> None:
    """Asserts equality except for the order of additions."""
    scale = max(1.0, float(np.abs(given.rewards).max()), float(np.abs(given.values).max()))
    np.testing.assert_allclose(expected, found.numpy(), rtol=1e-9, atol=1e-11 * scale * len(expected))


@given(segments(), LAMBDAS)
def test_generalized_advantages_equal_the_loop(given: Segments, lambd: float) -> None:
    """Generalized advantages equal the loop for ragged segments and several signals, and 0 in final rows."""
    found = GeneralizedAdvantages(lambd)(*given.arguments())
    assert_close(loop(given, lambd, 1.0, 1.0).advantages, found.advantages, given)


@given(segments(), LAMBDAS, st.floats(0.05, 5.0), st.floats(0.05, 1.0))
def test_vtrace_equals_the_loop(given: Segments, lambd: float, rho_bar: float, share: float) -> None:
    """Targets and advantages of V-trace equal the loop for c_bar <= rho_bar; final rows keep values.

    Ratios that overflow are truncated, and those that underflow are 0.
    """
    plan, valued = given.arguments()
    c_bar = share * rho_bar
    found = VTraceTargets(lambd, rho_bar, c_bar)(plan, valued)
    expected = loop(given, lambd, rho_bar, c_bar)
    is_step = plan.is_step.bool().numpy()[:, None]
    assert_close(np.where(is_step, expected.vtrace_values, given.values), found.returns, given)
    assert_close(expected.vtrace_advantages, found.advantages, given)


def test_signals_have_their_own_discounts_and_ends() -> None:
    """Each signal has its own discount; one that ignores ends bootstraps at a terminal step."""
    ends, gamma = np.array([[True, False]]), np.array([0.9, 0.5])
    given = Segments((1,), ends, np.ones((2, 2)), np.full((2, 2), 10.0), np.zeros(2), gamma)
    expected = [[1.0 - 10.0, 1.0 + 0.5 * 10.0 - 10.0], [0.0, 0.0]]
    for rule in (GeneralizedAdvantages(LAMBD), VTraceTargets(LAMBD, 1.0, 1.0)):
        assert rule(*given.arguments()).advantages.tolist() == expected


GAMMA, LAMBD, RHO_BAR, C_BAR = 0.95, 0.9, 0.98, 0.9
LENGTHS = [7, 1, 20, 3, 2, 1, 12, 16]
HYPER = {"lambd": LAMBD, "rho_bar": RHO_BAR, "c_bar": C_BAR, "learning_rate": 0.02, "normalize_values": False}


def with_old_steps(kind: type[ActorCriticTrainer], name: str, ratio: str) -> tuple[ActorCriticTrainer, Chunk]:
    """Returns a trainer at version 2 with steps of version 0, and their chunk."""
    bench, trainer = make_kind(
        kind,
        name,
        HYBRID,
        hyper={**HYPER, "ratio": ratio},
        network={"normalize": False},
        reward_signals={"extrinsic": {"gamma": GAMMA, "strength": 0.5}},
        threaded=True,
    )
    actor = SyntheticActor(bench)
    old = actor.chunk(LENGTHS)
    feed(bench, actor, 2, trainer)
    trainer.update_buffer.clear()
    bench.put(old)
    trainer.collect()
    return trainer, old


@pytest.mark.parametrize("at_once", [5, 4096])
@pytest.mark.parametrize("ratio", ["joint", "per_action"])
@pytest.mark.parametrize(("kind", "name"), [(APPOTrainer, "appo"), (IMPALATrainer, "impala")])
def test_an_update_sees_what_a_loop_over_segments_computes(
    kind: type[ActorCriticTrainer], name: str, ratio: str, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Targets use the joint ratio, losses get recorded log-probabilities, and appo normalizes."""
    monkeypatch.setattr("learner.training.trainers.actor_critic.experience._ROWS_AT_ONCE", at_once)
    trainer, chunk = with_old_steps(kind, name, ratio)
    given = of_chunk(trainer, chunk, [GAMMA], 0.5 * chunk.columns["reward"].astype(np.float64)[:, None])
    assert np.abs(given.log_ratio).max() > 0.05  # two updates did move the policy
    expected = loop(given, LAMBD, RHO_BAR, C_BAR)
    experience = experience_of(trainer)
    found = {key: experience.sources[key].values.numpy() for key in ("returns", "advantage", "log_prob")}
    np.testing.assert_allclose(of_steps(given, expected.vtrace_values), found["returns"], rtol=1e-3, atol=1e-4)
    advantages = of_steps(given, expected.vtrace_advantages)
    if name == "appo":
        advantages = (advantages - advantages.mean()) / advantages.std()
    np.testing.assert_allclose(advantages, found["advantage"], rtol=1e-3, atol=1e-3)
    recorded = chunk.columns["log_prob"]
    recorded = recorded.sum(1, keepdims=True) if ratio == "joint" else recorded
    np.testing.assert_allclose(recorded, found["log_prob"], rtol=1e-5, atol=1e-6)
    assert set(experience.lag.tolist()) == {2}
