"""Tests Adam over one vector."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from learner.training.optimizers.adam import FlatAdam, ListedAdam, all_finite
from learner.training.optimizers.reduce import SingleLearner


def make_network() -> nn.Sequential:
    """Returns a network with fixed weights."""
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))


def make_optimizer(network: nn.Module, **changes: Any) -> FlatAdam:
    """Returns an optimizer with a large learning rate."""
    return FlatAdam(network, 0.1, SingleLearner(), **changes)


def make_losses(network: nn.Module) -> list[Callable[[], Tensor]]:
    """Returns five losses for five steps."""
    inputs = torch.randn(5, 7, 3, generator=torch.Generator().manual_seed(2))
    return [lambda values=values: (network(values) - 30.0).square().mean() for values in inputs]  # type: ignore[misc]


def descend(optimizer: FlatAdam, loss: Tensor) -> None:
    """Takes a step down a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@pytest.mark.parametrize("adaptive", [False, True])
@pytest.mark.parametrize(("max_grad_norm", "decay"), [(None, 0.0), (0.5, 0.0), (None, 0.3)])
def test_it_does_what_adam_does(max_grad_norm: float | None, decay: float, *, adaptive: bool) -> None:
    """Steps equal those of torch's AdamW whose biases do not decay, with and without clipping.

    A rate on the device that does not change takes the same steps.
    """
    ours, theirs = make_network(), make_network()
    clips = {"max_grad_norm": max_grad_norm} if max_grad_norm else {}
    optimizer = make_optimizer(ours, epsilon=1e-5, weight_decay=decay, adaptive=adaptive, **clips)
    groups = [
        {"params": [value for value in theirs.parameters() if value.dim() > 1], "weight_decay": decay},
        {"params": [value for value in theirs.parameters() if value.dim() == 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=0.1, eps=1e-5)
    for own, reference in zip(make_losses(ours), make_losses(theirs), strict=True):
        descend(optimizer, own())
        adam.zero_grad()
        reference().backward()
        if max_grad_norm is not None:
            nn.utils.clip_grad_norm_(theirs.parameters(), max_grad_norm)
        adam.step()
    for first, second in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(second, first, rtol=1e-4, atol=1e-5)
    assert optimizer.steps == 5


@pytest.mark.parametrize(
    ("rate", "divergence", "expected"),
    [(3e-4, 0.021, 2e-4), (3e-4, 0.02, 3e-4), (3e-4, 0.006, 3e-4), (3e-4, 0.004, 4.5e-4), (1.2e-5, 1.0, 1e-5), (9e-3, 0.0, 1e-2)],
)  # fmt: skip
def test_an_adaptive_rate_follows_the_divergence(rate: float, divergence: float, expected: float) -> None:
    """Beyond twice 0.01 it falls by a third, below half of that it rises by a half, within its bounds."""
    optimizer = FlatAdam(make_network(), rate, SingleLearner(), adaptive=True)
    optimizer.adapt(torch.tensor(divergence), 0.01)
    assert float(optimizer.learning_rate) == pytest.approx(expected)


def test_an_adaptive_rate_is_part_of_the_state() -> None:
    """Snapshots and saved states have it; a state without one leaves it; one that is not a rate is refused."""
    optimizer = make_optimizer(make_network(), adaptive=True)
    before = optimizer.snapshot()
    optimizer.adapt(torch.tensor(1.0), 0.01)
    saved = optimizer.state_dict()
    optimizer.restore(before)
    assert float(optimizer.learning_rate) == pytest.approx(0.1)
    optimizer.load_state_dict(saved)
    assert float(optimizer.learning_rate) == pytest.approx(0.1 / 1.5)
    optimizer.load_state_dict({name: saved[name] for name in ("first", "second", "steps")})
    assert float(optimizer.learning_rate) == pytest.approx(0.1 / 1.5)
    with pytest.raises(ValueError, match="learning_rate is -1"):
        optimizer.load_state_dict({**saved, "learning_rate": -1.0})
    with pytest.raises(TypeError, match="not adaptive"):
        make_optimizer(make_network()).adapt(torch.tensor(1.0), 0.01)


def test_a_snapshot_brings_everything_back() -> None:
    """After a restore the next steps are equal."""
    kept, tried = make_network(), make_network()
    first, second = make_optimizer(kept), make_optimizer(tried)
    losses, others = make_losses(kept), make_losses(tried)
    descend(first, losses[0]())
    descend(second, others[0]())
    before = second.snapshot()
    descend(second, others[1]() * float("nan"))
    assert not second.is_finite()
    second.restore(before)
    assert second.is_finite()
    descend(first, losses[2]())
    descend(second, others[2]())
    for one, other in zip(kept.parameters(), tried.parameters(), strict=True):
        assert torch.equal(one, other)


def test_it_goes_on_from_a_saved_state() -> None:
    """Saved and loaded parameters and state give the same next step."""
    network = make_network()
    optimizer = make_optimizer(network)
    losses = make_losses(network)
    for loss in losses[:3]:
        descend(optimizer, loss())
    weights, state = copy.deepcopy(network.state_dict()), copy.deepcopy(optimizer.state_dict())
    descend(optimizer, losses[3]())
    other = make_network()
    resumed = make_optimizer(other)
    other.load_state_dict(weights)
    resumed.load_state_dict(state)
    descend(resumed, make_losses(other)[3]())
    for one, two in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)


def test_the_state_of_another_network_is_refused() -> None:
    """The state of another network is refused."""
    state = make_optimizer(nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1))).state_dict()
    with pytest.raises(ValueError, match="has the parameters"):
        make_optimizer(make_network()).load_state_dict(state)


def test_a_moment_that_overflows_is_not_finite() -> None:
    """An overflow in a moment is reported as not finite."""
    network = make_network()
    optimizer = make_optimizer(network)
    before = optimizer.snapshot()
    descend(optimizer, 1e25 * make_losses(network)[0]())
    assert all(parameter.isfinite().all() for parameter in network.parameters())
    assert not optimizer.is_finite()
    optimizer.restore(before)
    assert optimizer.is_finite()


def test_the_listed_one_does_what_adam_does() -> None:
    """Steps equal those of torch's Adam, with a changing learning rate."""
    ours, theirs = make_network(), make_network()
    optimizer, adam = ListedAdam(ours, SingleLearner()), torch.optim.Adam(theirs.parameters(), lr=0.1)
    for number, (own, reference) in enumerate(zip(make_losses(ours), make_losses(theirs), strict=True)):
        adam.param_groups[0]["lr"] = 0.1 / (1 + number)
        adam.zero_grad()
        reference().backward()
        adam.step()
        optimizer.step(own(), 0.1 / (1 + number))
    for own_value, value in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(own_value, value, rtol=1e-5)
    assert bool(optimizer.is_finite())


def test_two_optimizers_share_a_network() -> None:
    """Two optimizers of one network see each other's changes."""
    network = make_network()
    flat = make_optimizer(network)
    listed = ListedAdam(network, SingleLearner())
    losses = make_losses(network)
    before = flat.snapshot().parameters
    listed.step(losses[0](), 0.1)
    between = flat.snapshot().parameters
    assert not torch.equal(before, between)
    descend(flat, losses[1]())
    after = torch.cat([value.detach().reshape(-1) for value in network.parameters()])
    assert torch.equal(flat.snapshot().parameters, after)
    assert not torch.equal(between, after)


def test_a_saved_state_goes_on() -> None:
    """Moments and steps are saved by parameter name; those of another network are refused."""
    network = make_network()
    optimizer = ListedAdam(network, SingleLearner())
    losses = make_losses(network)
    optimizer.step(losses[0](), 0.1)
    state, weights = optimizer.state_dict(), copy.deepcopy(network.state_dict())
    optimizer.step(losses[1](), 0.1)
    expected = copy.deepcopy(network.state_dict())
    network.load_state_dict(weights)
    other = ListedAdam(network, SingleLearner())
    other.load_state_dict(state)
    other.step(losses[1](), 0.1)
    assert all(torch.equal(value, expected[name]) for name, value in network.state_dict().items())
    with pytest.raises(ValueError, match="do not match the parameters"):
        ListedAdam(torch.nn.Linear(2, 2), SingleLearner()).load_state_dict(state)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_found(value: float) -> None:
    """Large finite values do not overflow."""
    values = 3e38 * torch.linspace(-1.0, 1.0, 1001)
    assert bool(all_finite(values))
    values[500] = value
    assert not bool(all_finite(values))
