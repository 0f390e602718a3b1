"""Compares hand-written derivatives of layers with autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from learner.shared.settings.network import Activation, NetworkSettings
from learner.training.networks.body import Body
from learner.training.networks.dense import ConditionedLayer, DenseLayers
from learner.training.networks.initializers import Initializer
from learner.training.networks.twin import TwinCritic
from tests.learner.training.networks.specs import behavior, goal, vector

KINDS: list[Activation] = ["swish", "tanh", "relu", "elu", "selu", "leaky_relu", "gelu"]


def make_layers(kind: Activation, count: int = 3) -> DenseLayers:
    """Returns layers 5 -> 7 -> 7 -> ... with non-zero biases."""
    generator = torch.Generator().manual_seed(3)
    layers = DenseLayers(5, (7,) * count, kind, Initializer("kaiming", generator))
    for name, parameter in layers.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, generator=generator)
        parameter.grad = torch.full_like(parameter, 77.0)
    return layers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_layers_are_the_plain_modules(kind: Activation, count: int) -> None:
    """Outputs and gradients equal those of torch's modules."""
    layers = make_layers(kind, count)
    activations = {
        "swish": nn.SiLU(),
        "tanh": nn.Tanh(),
        "relu": nn.ReLU(),
        "elu": nn.ELU(),
        "selu": nn.SELU(),
        "leaky_relu": nn.LeakyReLU(),
        "gelu": nn.GELU(),
    }
    plain = nn.Sequential(*(module for layer in layers.linear for module in (layer, activations[kind])))
    values = torch.randn(11, 5, generator=torch.Generator().manual_seed(4)).requires_grad_()
    outer = torch.randn(11, 7, generator=torch.Generator().manual_seed(5))
    watched = [values, *layers.parameters()]
    torch.testing.assert_close(layers(values), plain(values))
    torch.testing.assert_close(
        torch.autograd.grad(layers(values), watched, outer), torch.autograd.grad(plain(values), watched, outer)
    )


SETTINGS = NetworkSettings(hidden_units=16)
PLAIN = NetworkSettings(hidden_units=16, goal_conditioning_type="none")


@pytest.mark.parametrize("goals", [False, True])
def test_each_layer_has_the_width_that_is_listed(goals: bool) -> None:
    """Layers of policies, critics and twin critics have the listed widths; with goals the last depends on them."""
    settings = NetworkSettings(hidden_units=(24, 12, 6))
    observations = (vector(), goal()) if goals else (vector(),)
    found = Body(observations, settings, Initializer("orthogonal", torch.Generator().manual_seed(1)))
    widths = [value.numel() for name, value in found.layers.named_parameters() if name.endswith("bias")]
    assert (widths, found.size) == ([24, 12] if goals else [24, 12, 6], 6)
    assert (found.conditioned is not None) is goals
    twins = TwinCritic(behavior(*observations, continuous=2), settings, 1)
    shapes = {name: tuple(value.shape) for name, value in twins.named_parameters()}
    outputs = [shapes[f"layers.{place}.weight"][-1] for place in range(len(widths))]
    assert outputs == widths
    assert twins([torch.zeros(5, *each.shape) for each in observations], torch.zeros(5, 2)).shape == (2, 5, 1, 1)


def make_layer() -> ConditionedLayer:
    """Returns a layer 5 -> 7 conditioned on goals of 3."""
    initializer = Initializer("kaiming", torch.Generator().manual_seed(1))
    return ConditionedLayer(5, 7, 3, "relu", initializer)


def body(settings: NetworkSettings = SETTINGS) -> Body:
    """Returns a body with numbers and a goal."""
    return Body((vector(), goal()), settings, Initializer("orthogonal", torch.Generator().manual_seed(1)))


def test_weights_change_with_the_goal() -> None:
    """Each row's result depends on its own goal."""
    layer = make_layer()
    values = torch.ones(2, 5)
    goals = torch.tensor([[1.0, 0.0, -1.0], [0.0, 2.0, 0.5]])
    found = layer(values, goals)
    assert found.shape == (2, 7)
    assert not torch.allclose(found[0], found[1])
    for row in range(2):
        assert torch.allclose(found[row], layer(values[:1], goals[row : row + 1])[0], atol=1e-6)


def test_initial_weights_are_within_their_bound() -> None:
    """Initial weights are uniform within 1 / sqrt(units * inputs), in every family."""
    for kind in ("kaiming", "lecun", "orthogonal"):
        layer = ConditionedLayer(40, 30, 3, "tanh", Initializer(kind, torch.Generator().manual_seed(1)))
        bound = 1200**-0.5
        assert 0.99 * bound < layer.weights.weight.abs().max() <= bound
        assert torch.count_nonzero(layer.weights.bias) == torch.count_nonzero(layer.bias) == 0


def test_goals_that_are_all_alike_are_finite() -> None:
    """Zero and large goals give finite numbers and gradients."""
    layer = make_layer()
    goals = torch.tensor([[0.0] * 3, [1e4] * 3, [-1e4] * 3]).requires_grad_()
    found = layer(torch.ones(3, 5), goals)
    gradients = torch.autograd.grad(found.square().sum(), [*layer.parameters(), goals])
    assert torch.isfinite(found).all()
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_the_last_layer_of_the_body_is_conditioned(layers: int) -> None:
    """Only the last layer is conditioned, and the goal is also an input of the first."""
    found = body(SETTINGS.model_copy(update={"num_layers": layers}))
    assert len(found.layers.linear) == layers - 1
    assert found.conditioned is not None
    assert found.encoder.size == 7
    assert found([torch.randn(5, 4), torch.randn(5, 3)]).shape == (5, 16)
