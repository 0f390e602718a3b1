"""A policy whose draws are squashed by tanh, with a deviation that depends on what is observed; SAC acts by it."""

from __future__ import annotations

from typing import Final

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.dense import linear
from learner.networks.initializers import Initializer
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.settings.network import NetworkSettings

LOG_STD_MIN: Final = -20.0
LOG_STD_MAX: Final = 2.0
"""Bounds of the logarithm of a deviation (Haarnoja et al. 2018, arXiv:1801.01290, and ML-Agents)."""


class StateGaussianHead(nn.Module):
    """Mean and log standard deviation, both from what is observed.

    Args:
        inputs: width of the hidden numbers.
        actions: number of continuous axes.
        initializer: where initial weights come from.
    """

    def __init__(self, inputs: int, actions: int, initializer: Initializer) -> None:
        super().__init__()
        self.mean = initializer.linear(inputs, actions, initializer.gains.mean)
        self.log_std = initializer.linear(inputs, actions, initializer.gains.mean)

    def forward(self, hidden: Tensor) -> tuple[Tensor, Tensor]:
        """Computes mean and log standard deviation within its bounds, both ``[B, actions]``."""
        return linear(self.mean, hidden), torch.clamp(linear(self.log_std, hidden), LOG_STD_MIN, LOG_STD_MAX)


class SquashedPolicyNetwork(PolicyNetwork):
    """What acts: continuous actions are tanh of Gaussian draws; discrete ones as in every other policy.

    Args:
        spec: what the behavior sees and does.
        settings: the network block of the run file.
        generator: where initial weights come from; None is torch's own.

    Raises:
        UserError: the settings ask for something that does not fit the behavior.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, generator: torch.Generator | None = None) -> None:
        super().__init__(spec, settings, generator)
        axes = spec.action.continuous_size
        initializer = Initializer(settings.initialization, generator)
        self.state_gaussian = StateGaussianHead(self.body.size, axes, initializer) if axes else None
        self.gaussian = None  # its place is taken by `state_gaussian`

    def act(self, hidden: Tensor, action_masks: Tensor | None) -> PolicyOutput:
        """Computes distribution parameters from the body's numbers ``[B, size]``."""
        mean, log_std = (None, None) if self.state_gaussian is None else self.state_gaussian.forward(hidden)
        logits = None if self.categorical is None else self.categorical.forward(hidden, action_masks)
        return PolicyOutput(mean, log_std, logits, None)


def squash_of(network: PolicyNetwork) -> Squash:
    """Returns what actors do to the continuous draws of a network."""
    return Squash.TANH if isinstance(network, SquashedPolicyNetwork) else Squash.CLIP3_DIV3
