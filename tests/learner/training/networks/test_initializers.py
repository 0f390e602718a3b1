"""Tests initial weights."""

from __future__ import annotations

import math

import pytest
import torch

from learner.training.networks.initializers import Initializer


def make_generator(seed: int = 1) -> torch.Generator:
    """Returns a new generator."""
    return torch.Generator().manual_seed(seed)


def test_orthogonal_weights_are_orthogonal_times_the_gain() -> None:
    """Rows of an orthogonal layer have the gain as length and are perpendicular."""
    layer = Initializer("orthogonal", make_generator()).linear(64, 32, gain=0.01)
    assert torch.allclose(layer.weight @ layer.weight.T, 1e-4 * torch.eye(32), atol=1e-8)
    assert torch.count_nonzero(layer.bias) == 0


def test_kaiming_weights_have_he_variance_times_the_gain() -> None:
    """The standard deviation of a Kaiming layer is gain * sqrt(2 / inputs)."""
    layer = Initializer("kaiming", make_generator()).linear(400, 400, gain=0.2)
    assert layer.weight.std().item() == pytest.approx(0.2 * math.sqrt(2 / 400), rel=0.02)


def test_lecun_weights_are_those_of_ml_agents() -> None:
    """Linear layers have 1 / sqrt(inputs) times the gain, after convolutions times sqrt(2)."""
    initializer = Initializer("lecun", make_generator())
    assert initializer.linear(400, 400, gain=0.2).weight.std().item() == pytest.approx(0.2 / 20, rel=0.02)
    assert initializer.gains.encoded == math.sqrt(2)
    layer = initializer.conv(16, 64, 4, 2)
    bound = 1 / math.sqrt(16 * 4 * 4)
    assert layer.bias is not None
    for values in (layer.weight, layer.bias):
        assert 0.9 * bound < values.abs().max().item() <= bound
    assert layer.weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.05)


@pytest.mark.parametrize("kind", ["kaiming", "lecun", "orthogonal"])
def test_no_global_randomness_is_used(kind: str) -> None:
    """Equal generators give equal layers, and torch's global generator is not used."""
    before = torch.get_rng_state()
    layers = [Initializer(kind, make_generator()).conv(3, 8, 4, 2) for _ in range(2)]  # type: ignore[arg-type]
    values = [Initializer(kind, make_generator()).value(8, 2) for _ in range(2)]  # type: ignore[arg-type]
    assert torch.equal(layers[0].weight, layers[1].weight)
    assert torch.equal(values[0].weight, values[1].weight)
    assert torch.equal(before, torch.get_rng_state())
