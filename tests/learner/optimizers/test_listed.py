"""Adam over parameters that another optimizer has in one piece."""

from __future__ import annotations

import copy

import pytest
import torch

from learner.optimizers.listed import ListedAdam
from learner.optimizers.reduce import SingleLearner
from tests.learner.optimizers.test_adam import descend, make_losses, make_network, make_optimizer


def test_it_does_what_adam_does() -> None:
    """Steps equal those of torch's Adam, with a learning rate that changes."""
    ours, theirs = make_network(), make_network()
    optimizer, adam = ListedAdam(ours, SingleLearner()), torch.optim.Adam(theirs.parameters(), lr=0.1)
    for number, (own, reference) in enumerate(zip(make_losses(ours), make_losses(theirs), strict=True)):
        adam.param_groups[0]["lr"] = 0.1 / (1 + number)
        adam.zero_grad()
        reference().backward()  # type: ignore[no-untyped-call]
        adam.step()
        optimizer.step(own(), 0.1 / (1 + number))
    for own_value, value in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.allclose(own_value, value, rtol=1e-5)
    assert bool(optimizer.is_finite())


def test_two_optimizers_share_a_network() -> None:
    """What one changes, the other sees and changes on: the parameters stay views of the flat one's vector."""
    network = make_network()
    flat = make_optimizer(network)
    listed = ListedAdam(network, SingleLearner())
    losses = make_losses(network)
    before = flat.snapshot().parameters
    listed.step(losses[0](), 0.1)
    between = flat.snapshot().parameters
    assert not torch.equal(before, between)
    descend(flat, network, losses[1]())
    after = torch.cat([value.detach().reshape(-1) for value in network.parameters()])
    assert torch.equal(flat.snapshot().parameters, after)
    assert not torch.equal(between, after)


def test_a_saved_state_goes_on() -> None:
    """Moments and steps come back by the parameters' names; those of another network are refused."""
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
    with pytest.raises(ValueError, match="not those of the parameters"):
        ListedAdam(torch.nn.Linear(2, 2), SingleLearner()).load_state_dict(state)
