"""A policy whose draws are squashed by tanh, with a deviation that depends on what is observed; SAC acts by it."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.dense import linear
from learner.networks.distributions import log_tanh_slope
from learner.networks.initializers import Initializer
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.settings.network import NetworkSettings

LOG_STD_MIN: Final = -20.0
LOG_STD_MAX: Final = 2.0
"""Bounds of the logarithm of a deviation (Haarnoja et al. 2018, arXiv:1801.01290, and ML-Agents)."""

_HALF_LOG_TWO_PI: Final = 0.5 * math.log(2.0 * math.pi)
_CLIP: Final = 3.0
"""The draw that CLIP3_DIV3 makes 1 of."""


class Draw(NamedTuple):
    """What a squashed policy does in B states.

    Attributes:
        output: the policy's.
        actions: ``[B, n]`` in [-1, 1], or None without continuous actions.
        log_prob: ``[B]`` of the whole continuous action, or None.
    """

    output: PolicyOutput
    actions: Tensor | None
    log_prob: Tensor | None


def draw(output: PolicyOutput, noise: Tensor | None) -> Draw:
    """Makes actions of a squashed policy's output and standard normal noise ``[B, n]``; they have its gradient."""
    if output.mean is None or output.log_std is None or noise is None:
        return Draw(output, None, None)
    raw = torch.addcmul(output.mean, output.log_std.exp(), noise)
    # The standardized draw is the noise itself.
    density = torch.addcmul(output.log_std + log_tanh_slope(raw), noise, noise, value=0.5).sum(1)
    return Draw(output, torch.tanh(raw), -(density + _HALF_LOG_TWO_PI * noise.shape[1]))


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


def squashed(draws: Tensor, squash: Squash) -> Tensor:
    """Computes what actors make of draws before they map them onto the bounds: ``[B, n]`` in [-1, 1]."""
    return torch.tanh(draws) if squash is Squash.TANH else draws.clamp(-_CLIP, _CLIP) / _CLIP
