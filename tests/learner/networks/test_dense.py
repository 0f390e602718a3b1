"""Layers with derivatives by hand against the same layers through autograd."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from learner.networks.activations import Activation
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
        parameter.grad = torch.full_like(parameter, 77.0)
    return layers


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("to_inputs", [False, True])
def test_gradients_are_those_of_autograd(kind: Activation, count: int, *, to_inputs: bool) -> None:
    """Outputs, parameter gradients and, if wanted, the input's equal those of the plain modules."""
    layers = make_layers(kind, count)
    values = torch.randn(11, 5, generator=torch.Generator().manual_seed(4)).requires_grad_()
    outer = torch.randn(11, 7, generator=torch.Generator().manual_seed(5))
    expected = layers(values)
    theirs = torch.autograd.grad(expected, [values, *layers.parameters()], outer)
    with torch.no_grad():
        found, record = layers.record(values.detach())
        inner = layers.backward(record, outer, to_inputs=to_inputs)
    assert torch.allclose(expected, found, atol=3e-7)
    ours = [parameter.grad for parameter in layers.parameters()]
    for gradient, other in zip(theirs[1:], ours, strict=True):
        assert other is not None
        assert torch.allclose(gradient, other, rtol=1e-4, atol=1e-5)
    if inner is None:
        assert not to_inputs
    else:
        assert torch.allclose(theirs[0], inner, rtol=1e-4, atol=1e-5)


def test_large_sums_saturate() -> None:
    """Tanh of sums far from zero is -1 or 1, and its gradient 0, not NaN."""
    layers = make_layers("tanh", 1)
    with torch.no_grad():
        found, record = layers.record(torch.tensor([[1e6] * 5, [-1e6] * 5]))
        layers.backward(record, torch.ones(2, 7), to_inputs=False)
    assert torch.equal(found.abs(), torch.ones(2, 7))
    assert all(
        torch.count_nonzero(parameter.grad) == 0 for parameter in layers.parameters() if parameter.grad is not None
    )
