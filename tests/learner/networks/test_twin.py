"""Twin critics: what they compute, and that their derivatives are autograd's."""

from __future__ import annotations

import copy

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.networks.encoders import Encoded
from learner.networks.twin import TwinCritic
from learner.settings.network import NetworkSettings
from tests.learner.networks.specs import behavior, entities, goal, image, vector

SPECS = {
    "continuous": behavior(continuous=2),
    "discrete": behavior(vector(), vector("other", 2), branches=(3, 2)),
    "hybrid": behavior(continuous=1, branches=(4,)),
    "pictures": behavior(image(), vector(), continuous=2),
    "lists": behavior(entities(), vector(), continuous=1, branches=(2,)),
    "goals": behavior(goal(), vector(), continuous=2),
    "goals for choices": behavior(goal(), vector(), branches=(3,)),
}
BOARDS = {
    "moves": behavior(image(shape=(5, 4, 3)), vector(), branches=(20, 2)),
    "axes": behavior(image(shape=(5, 4, 3)), continuous=2),
    "moves and axes": behavior(image(shape=(5, 4, 3)), continuous=1, branches=(20,)),
}
SIGNALS, STEPS = 2, 5
SIZES = torch.tensor([2, 2, 1])  # two sequences, of three steps and of two


def observations(spec: BehaviorSpec) -> list[Tensor]:
    """Random observations in wire types."""
    found = []
    for observation in spec.observations:
        values = torch.rand(STEPS, *observation.shape) * 4.0
        found.append(values.to(torch.uint8) if observation.dtype.kind == "u" else values)
    return found


def make(spec: BehaviorSpec, **settings: object) -> TwinCritic:
    """Critics whose parameters have gradients to write to."""
    network = NetworkSettings.model_validate({"hidden_units": 8, **settings})
    critic = TwinCritic(spec, network, SIGNALS, torch.Generator().manual_seed(1))
    for parameter in critic.parameters():
        parameter.grad = torch.full_like(parameter, torch.nan)
    return critic


def actions_of(spec: BehaviorSpec) -> Tensor | None:
    """Random continuous actions, if there are any."""
    axes = spec.action.continuous_size
    return torch.rand(STEPS, axes) * 2.0 - 1.0 if axes else None


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("activation", ["swish", "relu", "tanh"])
@pytest.mark.parametrize(("layers", "memory"), [(1, None), (3, None), (1, {"memory_size": 6}), (2, {"memory_size": 6})])
def test_derivatives_are_autograd_s(
    spec: BehaviorSpec, activation: str, layers: int, memory: dict[str, int] | None
) -> None:
    """Every parameter's gradient is written, and that of the actions returned, for any outer derivative."""
    critic = make(spec, activation=activation, num_layers=layers, memory=memory)
    check_derivatives(critic, spec, None if memory is None else SIZES)


@pytest.mark.parametrize("spec", BOARDS.values(), ids=BOARDS.keys())
def test_derivatives_of_towers_are_autograd_s(spec: BehaviorSpec) -> None:
    """Of the tower, which is common, and of what each twin sees of its planes."""
    check_derivatives(make(spec, tower={"depth": 1, "width": 4}), spec, None)


def test_each_twin_sees_planes_of_a_tower_of_its_own() -> None:
    """Another convolution of the one changes nothing of the other."""
    spec = BOARDS["moves"]
    critic = make(spec, tower={"depth": 1, "width": 4, "policy_planes": 3})
    seen = observations(spec)
    with torch.no_grad():
        first, second = critic(seen, None)
        assert critic.neck is not None
        assert critic.neck.conv.bias is not None
        critic.neck.conv.bias[:3] += 1.0
        changed, same = critic(seen, None)
    assert not torch.allclose(changed, first)
    assert torch.equal(same, second)


def check_derivatives(critic: TwinCritic, spec: BehaviorSpec, sizes: Tensor | None) -> None:
    """Compares everything that is written and returned with what autograd finds."""
    seen, actions = observations(spec), actions_of(spec)
    outer = torch.randn(2, STEPS, SIGNALS, spec.action.mask_size or 1)

    reference = copy.deepcopy(critic)
    for parameter in reference.parameters():
        parameter.grad = None
    leaf = None if actions is None else actions.clone().requires_grad_()
    expected = reference(seen, leaf, sizes)
    torch.autograd.backward(expected, outer)

    with torch.no_grad():
        with torch.set_grad_enabled(critic.encoder_learns):
            encoded = critic.encode(seen, sizes)
        detached = Encoded(encoded.values.detach(), None if encoded.goals is None else encoded.goals.detach())
        values, record = critic.record(encoded if critic.conditioned is not None else detached, actions)
        critic.backward(record, encoded, outer)
        again, record = critic.record(detached, actions)
        to_actions = None if actions is None else critic.to_actions(record, outer)
    assert values.shape == outer.shape
    torch.testing.assert_close(values, expected.detach(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(again, values)
    for (name, own), theirs in zip(critic.named_parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(own.grad, theirs.grad, rtol=1e-3, atol=1e-4, msg=name)
    if leaf is not None:
        torch.testing.assert_close(to_actions, leaf.grad, rtol=1e-3, atol=1e-4)


def test_the_twins_differ_and_share_nothing_but_the_encoder() -> None:
    """Another parameter of the one changes nothing of the other."""
    critic = make(SPECS["continuous"])
    seen, actions = observations(SPECS["continuous"]), actions_of(SPECS["continuous"])
    with torch.no_grad():
        first, second = critic(seen, actions)
        assert not torch.allclose(first, second)
        critic.head.weight[0] += 1.0
        changed, same = critic(seen, actions)
    assert not torch.allclose(changed, first)
    assert torch.equal(same, second)


def test_a_memory_goes_through_sequences_from_nothing() -> None:
    """What a step is worth depends on the steps before it in its own sequence, and on no others."""
    critic = make(SPECS["continuous"], memory={"memory_size": 6})
    seen, actions = observations(SPECS["continuous"]), actions_of(SPECS["continuous"])
    with torch.no_grad():
        values = critic(seen, actions, SIZES)
        seen[0][0] += 1.0
        changed = critic(seen, actions, SIZES)
        assert actions is not None
        alone = critic([seen[0][[1, 3]]], actions[[1, 3]], torch.tensor([1, 1]))
    is_same = [torch.equal(values[:, step], changed[:, step]) for step in range(STEPS)]
    assert is_same == [False, True, False, True, False]
    torch.testing.assert_close(alone[:, 0], values[:, 1])
    with pytest.raises(ValueError, match="without sequences"):
        critic.encode(seen)


def test_the_same_generator_makes_the_same_critics() -> None:
    """Nothing is drawn from global random state."""
    one, other = make(SPECS["hybrid"]), make(SPECS["hybrid"])
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
