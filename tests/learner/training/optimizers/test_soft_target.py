"""Tests slowly following target networks."""

from __future__ import annotations

import copy

import torch
from torch import nn

from learner.training.optimizers.adam import FlatAdam
from learner.training.optimizers.reduce import SingleLearner
from learner.training.optimizers.soft_target import SoftTarget


def test_each_update_goes_a_share_of_the_way() -> None:
    """Each update moves the target by a share; fixed parts stay."""
    network = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1))
    network[1].requires_grad_(False)
    target = copy.deepcopy(network).requires_grad_(False)
    start = {name: value.clone() for name, value in target.named_parameters()}
    optimizer = FlatAdam(network, 1e-3, SingleLearner())
    follower = SoftTarget(target, network, optimizer, tau=0.25)
    optimizer.parameters.add_(1.0)
    for share in (0.25, 0.25 + 0.75 * 0.25):
        follower.update()
        for name, value in target.named_parameters():
            expected = start[name] + (0.0 if name.startswith("1.") else share)
            torch.testing.assert_close(value, expected)
