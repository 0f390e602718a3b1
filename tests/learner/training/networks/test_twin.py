"""Tests twin critics: two networks with a common encoder."""

from __future__ import annotations

import pytest
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor
from torch.nn import functional

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.encoders import Encoded
from learner.training.networks.twin import TwinCritic, TwinLayer
from tests.learner.training.networks.specs import behavior, entities, goal, image, vector

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
    """Returns random observations in wire types."""
    found = []
    for observation in spec.observations:
        values = torch.rand(STEPS, *observation.shape) * 4.0
        found.append(values.to(torch.uint8) if observation.dtype.kind == "u" else values)
    return found


def make(spec: BehaviorSpec, **settings: object) -> TwinCritic:
    """Returns critics with 8 units per layer."""
    network = NetworkSettings.model_validate({"hidden_units": 8, **settings})
    return TwinCritic(spec, network, SIGNALS, torch.Generator().manual_seed(1))


def actions_of(spec: BehaviorSpec) -> Tensor | None:
    """Returns random continuous actions, if there are any."""
    axes = spec.action.continuous_size
    return torch.rand(STEPS, axes) * 2.0 - 1.0 if axes else None


ACTIVATIONS = {"swish": functional.silu, "relu": torch.relu, "tanh": torch.tanh}


def alone(critic: TwinCritic, twin: int, activation: str, encoded: Encoded, actions: Tensor | None) -> Tensor:
    """Returns the values of one twin, layer by layer, ``[B, signals, choices]``."""
    values = encoded.values if encoded.values.dim() == 2 else encoded.values[twin]
    if actions is not None:
        values = torch.cat((values, actions), 1)
    for layer in critic.layers:
        assert isinstance(layer, TwinLayer)
        values = ACTIVATIONS[activation](functional.linear(values, layer.weight[twin].t(), layer.bias[twin, 0]))
    if critic.conditioned is not None:
        values = critic.conditioned[twin](values, encoded.goals)
    outputs = functional.linear(values, critic.head.weight[twin].t(), critic.head.bias[twin, 0])
    return outputs.view(STEPS, SIGNALS, critic.choices)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("activation", ["swish", "relu", "tanh"])
@pytest.mark.parametrize(("layers", "memory"), [(1, None), (3, None), (1, {"memory_size": 6}), (2, {"memory_size": 6})])
def test_each_twin_is_a_network_of_its_own(
    spec: BehaviorSpec, activation: str, layers: int, memory: dict[str, int] | None
) -> None:
    """Each twin's values follow from its own weights, all of which have gradients."""
    critic = make(spec, activation=activation, num_layers=layers, memory=memory)
    check_twins(critic, spec, activation, None if memory is None else SIZES)


@pytest.mark.parametrize("spec", BOARDS.values(), ids=BOARDS.keys())
def test_each_twin_behind_a_tower_is_a_network_of_its_own(spec: BehaviorSpec) -> None:
    """Twins behind a tower share it and have their own planes."""
    check_twins(make(spec, tower={"depth": 1, "width": 4}), spec, "tanh", None)


def check_twins(critic: TwinCritic, spec: BehaviorSpec, activation: str, sizes: Tensor | None) -> None:
    """Compares both with networks that are computed alone."""
    seen, actions = observations(spec), actions_of(spec)
    values = critic(seen, actions, sizes)
    assert values.shape == (2, STEPS, SIGNALS, spec.action.mask_size or 1)
    encoded = critic.encode(seen, sizes)
    for twin in range(2):
        torch.testing.assert_close(
            values[twin], alone(critic, twin, activation, encoded, actions), rtol=1e-4, atol=1e-5
        )
    torch.autograd.backward((values * torch.randn_like(values)).sum())
    for name, parameter in critic.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize(
    "spec", [SPECS["continuous"], SPECS["goals"], BOARDS["axes"]], ids=["vector", "goals", "board"]
)
def test_frozen_critics_have_a_gradient_in_their_actions_only(spec: BehaviorSpec) -> None:
    """Frozen critics have the usual gradient in actions, and learn again after the block."""
    critic = make(spec, tower={"depth": 1, "width": 4} if spec is BOARDS["axes"] else None)
    actions = actions_of(spec)
    assert actions is not None
    actions.requires_grad_()
    encoded = critic.encode(observations(spec)).detach()
    before = critic.values(encoded, actions)
    (wanted,) = torch.autograd.grad(before.sum(), [actions], retain_graph=True)
    with critic.frozen():
        values = critic.values(encoded, actions)
    torch.autograd.backward(values.sum())
    torch.testing.assert_close(actions.grad, wanted)
    assert all(parameter.grad is None for parameter in critic.parameters())
    torch.autograd.backward(before.sum())
    assert critic.head.weight.grad is not None


def test_each_twin_sees_planes_of_a_tower_of_its_own() -> None:
    """Changing one twin's convolution does not change the other."""
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


def test_a_memory_goes_through_sequences_from_nothing() -> None:
    """A step's value depends only on earlier steps of its own sequence."""
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
