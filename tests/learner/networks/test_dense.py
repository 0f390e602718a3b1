"""Layers with derived gradients against the same layers through autograd."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from learner.networks.activations import Activation, activation
from learner.networks.dense import DenseLayers
from learner.networks.initializers import Initializer

KINDS: list[Activation] = ["swish", "tanh", "relu"]


def make_layers(kind: Activation, count: int = 3) -> DenseLayers:
    """Layers 5 -> 7 -> 7 -> ... with biases that are not zero."""
    generator = torch.Generator().manual_seed(3)
    layers = DenseLayers(5, 7, count, kind, Initializer("kaiming", generator))
    for name, parameter in layers.named_parameters():
        if name.endswith("bias"):
            nn.init.normal_(parameter, generator=generator)
    return layers


def run_reference(layers: DenseLayers, values: Tensor, kind: Activation) -> Tensor:
    """The layers one by one."""
    for layer in layers.linear:
        values = activation(kind)(layer(values))
    return values


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_gradients_are_those_of_autograd(kind: Activation, count: int) -> None:
    """Output, parameter gradients and input gradient equal those of separate layers."""
    layers = make_layers(kind, count)
    values = torch.randn(11, 5, generator=torch.Generator().manual_seed(4)).requires_grad_()
    weights = torch.randn(11, 7, generator=torch.Generator().manual_seed(5))
    wanted = [values, *layers.parameters()]
    expected = run_reference(layers, values, kind)
    found = layers(values)
    assert torch.allclose(expected, found, atol=3e-7)
    pairs = zip(
        torch.autograd.grad((expected * weights).sum(), wanted),
        torch.autograd.grad((found * weights).sum(), wanted),
        strict=True,
    )
    for theirs, ours in pairs:
        assert torch.allclose(theirs, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_without_gradients_the_numbers_are_the_same(kind: Activation) -> None:
    """Acting and training see the same activations to float32 rounding."""
    layers, values = make_layers(kind), torch.randn(6, 5)
    with torch.no_grad():
        expected = layers(values)
    assert torch.allclose(expected, layers(values), atol=3e-7)


def test_large_sums_saturate() -> None:
    """Tanh of sums far from zero is -1 or 1, and its gradient 0, not NaN."""
    layers = make_layers("tanh", 1)
    found = layers(torch.tensor([[1e6] * 5, [-1e6] * 5]))
    assert torch.equal(found.abs(), torch.ones(2, 7))
    gradients = torch.autograd.grad(found.sum(), list(layers.parameters()))
    assert all(torch.count_nonzero(gradient) == 0 for gradient in gradients)
