"""All copies of the map from a draw to an action agree, for every kind of standard deviation.

Copies: the transform of the policy's header, the actor's prepared one, torch (critics, Unity's model), encoded actions
of reward signals, and demonstrations, which are mapped back to draws.
"""

from __future__ import annotations

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.demonstrations.writing import ActionUnits
from rollcast.enums import Squash
from rollcast.specs import ActionSpec, BehaviorSpec
from torch import Tensor

from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.shared.observe.behavior_state import LOG_PROB_ERROR_LIMIT
from learner.shared.settings.network import NetworkSettings
from learner.training.export.check import open_session
from learner.training.export.describe import Progress, describe
from learner.training.export.onnx import PolicyExporter
from learner.training.export.unity import render_unity
from learner.training.networks.distributions import tanh_gaussian_log_prob
from learner.training.networks.heads import BOX_LOG_STD, PLAYER_LOG_STD
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import SquashedPolicyNetwork, squash_of, squashed
from learner.training.rewards.actions import ActionNumbers
from learner.training.rewards.demonstrations import LARGEST_TANH, as_draws
from learner.training.trainers.actor_critic.loss import log_probability
from tests.learner.training.networks.specs import vector

Bounds = tuple[tuple[float, float], ...]
AXES = st.sampled_from([(-1.0, 1.0), (-2.0, 2.0), (0.0, 1.0), (-0.4, 5.0), (-math.inf, math.inf), (0.0, math.inf)])
STATES = 64


class Kind(NamedTuple):
    """A kind of standard deviation.

    Attributes:
        network: Class of the policy.
        std: Setting of the run file.
    """

    network: type[PolicyNetwork]
    std: Literal["free", "state"]


KINDS = {
    "free": Kind(PolicyNetwork, "free"),
    "state": Kind(PolicyNetwork, "state"),
    "tanh": Kind(SquashedPolicyNetwork, "state"),
}


def behavior(bounds: Bounds) -> BehaviorSpec:
    """Returns a behavior with these axes; a Unity player's two without bounds if there are none."""
    low, high = tuple(pair[0] for pair in bounds), tuple(pair[1] for pair in bounds)
    return BehaviorSpec("Reacher", (vector(),), ActionSpec(len(bounds) or 2, continuous_low=low, continuous_high=high))


def policy_of(kind: Kind, spec: BehaviorSpec, log_std_init: float | None, seed: int) -> PolicyNetwork:
    """Returns a policy far from its initial weights, whose draws reach beyond the clip.

    Deviations of a policy with tanh stay above those for which actors cannot round log-probabilities to 1e-3; no loss
    uses its recorded ones.
    """
    generator = torch.Generator().manual_seed(seed)
    chosen = NetworkSettings(hidden_units=8, num_layers=1, std=kind.std, log_std_init=log_std_init)
    network = kind.network(spec, chosen, generator)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            scale = 0.3 if kind.network is SquashedPolicyNetwork and "log_std" in name else 1.0
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=scale)
    return network


def exported(network: PolicyNetwork) -> Policy:
    """Returns what an actor makes of the published policy."""
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1))
    version = exporter.render_version(network.state_dict(), Progress(1, 0, 0))
    return Policy.load(*version, network.spec)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None)
@given(
    bounds=st.one_of(st.just(()), st.lists(AXES, min_size=1, max_size=4).map(tuple)),
    log_std_init=st.one_of(st.none(), st.floats(-3.0, 1.0)),
    seed=st.integers(0, 2**31 - 1),
)
def test_copies_of_the_transform_agree(kind: str, bounds: Bounds, log_std_init: float | None, seed: int) -> None:
    """Drawn and greedy actions are the same in every copy, and recorded log-probabilities are torch's."""
    spec = behavior(bounds)
    network = policy_of(KINDS[kind], spec, log_std_init, seed)
    policy, squash, units = exported(network), squash_of(network), ActionUnits(spec.action)
    seen = np.random.default_rng(seed).normal(size=(STATES, 4)).astype(np.float32)
    noise = Noise(seed, 0, agents=STATES, continuous_size=spec.action.continuous_size, logits_size=0)
    with torch.no_grad():
        output = network([torch.from_numpy(seen)])
    scale = np.where(units.bounded, units.actions(np.ones((1, units.bounded.size), np.float32)), 1.0).max()

    for acting in (policy, policy.greedy()):
        actions = acting.act([seen], None, noise)
        assert actions.continuous is not None
        assert actions.environment_continuous is not None
        raw = torch.from_numpy(actions.continuous)
        wire = policy.description.action_transform.apply(actions.continuous)
        close: dict[str, Any] = {"rtol": 1e-4, "atol": 1e-5 * scale}
        np.testing.assert_allclose(actions.environment_continuous, wire, **close)

        own = torch.where(torch.from_numpy(units.bounded), squashed(raw, squash), raw)
        np.testing.assert_allclose(units.actions(own.numpy()), wire, **close)

        told = ActionNumbers(spec.action, squash).told_apart(raw)
        if squash is Squash.TANH:
            np.testing.assert_allclose(units.actions(told.numpy()), wire, **close)
        else:
            np.testing.assert_allclose(policy.description.action_transform.apply(told.numpy()), wire, **close)

        demonstrated = as_draws(torch.from_numpy(units.unit(wire)), spec.action, squash)
        again = policy.description.action_transform.apply(demonstrated.numpy())
        if squash is Squash.TANH:  # no finite draw maps to the bound
            close["atol"] += (1.0 - LARGEST_TANH) * float(np.abs(wire).max(initial=1.0))
        np.testing.assert_allclose(again, wire, **close)
        error = own_log_prob(output, raw, squash).detach().numpy() - actions.log_prob
        assert np.abs(error).max() < LOG_PROB_ERROR_LIMIT

    _compare_unity(network, seen, actions.environment_continuous)


def own_log_prob(output: Any, raw: Tensor, squash: Squash) -> Tensor:
    """Computes the learner's log-probabilities of recorded draws."""
    if squash is Squash.TANH:
        return tanh_gaussian_log_prob(output.mean, output.log_std, raw)
    return log_probability(output, raw, None, "per_action")


def _compare_unity(network: PolicyNetwork, seen: Any, greedy: Any) -> None:
    """Compares Unity's model, whose actions are in [-1, 1], on axes with bounds."""
    units = ActionUnits(network.spec.action)
    session = open_session(render_unity(network))
    (found,) = session.run(["deterministic_continuous_actions"], {"obs_0": seen})
    chosen = units.actions(np.asarray(found, np.float32))
    np.testing.assert_allclose(chosen[:, units.bounded], greedy[:, units.bounded], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("bounds", "log_std_init", "expected"),
    [
        ((), None, [math.exp(PLAYER_LOG_STD)] * 2),
        (((-1.0, 1.0), (-2.0, 2.0)), None, [math.exp(BOX_LOG_STD), 2.0 * math.exp(BOX_LOG_STD)]),
        (((-1.0, 1.0), (-2.0, 2.0), (0.0, 1.0)), math.log(0.5), [0.5, 1.0, 0.25]),
        (((-math.inf, math.inf), (-1.0, 1.0)), None, [1.0, math.exp(BOX_LOG_STD)]),
        (((-math.inf, math.inf), (-1.0, 1.0)), math.log(0.25), [0.25, 0.25]),
    ],
)
@pytest.mark.parametrize("std", ["free", "state"])
def test_the_start_is_in_half_ranges(
    std: Literal["free", "state"], bounds: Bounds, log_std_init: float | None, expected: list[float]
) -> None:
    """A change of the draw by one standard deviation changes the action by exp(log_std_init) half-ranges.

    The defaults are half of the half-range, or a third for players; an axis without bounds has the units of its environment.
    """
    spec = behavior(bounds)
    network = PolicyNetwork(spec, NetworkSettings(hidden_units=8, std=std, log_std_init=log_std_init))
    transform = describe(network, behavior_index=0, generation=1).action_transform
    with torch.no_grad():
        log_std = network([torch.zeros(1, 4)]).log_std
    assert log_std is not None
    spread = log_std.detach().exp().numpy()
    moved = transform.apply(spread) - transform.apply(np.zeros_like(spread))
    np.testing.assert_allclose(moved[0], expected, rtol=1e-5)


def test_the_start_of_a_tanh_policy_is_in_half_ranges_too() -> None:
    """Near 0, where the slope of tanh is 1; without the key it is 1."""
    for log_std_init, expected in ((None, 0.0), (-2.0, -2.0)):
        network = SquashedPolicyNetwork(behavior(()), NetworkSettings(hidden_units=8, log_std_init=log_std_init))
        with torch.no_grad():
            log_std = network([torch.zeros(1, 4)]).log_std
        assert log_std is not None
        assert torch.allclose(log_std, torch.full_like(log_std, expected))
