"""A policy with tanh-squashed draws and a state-dependent standard deviation, used by SAC."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from rollcast.transforms import CLIP
from torch import Tensor

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.distributions import log_tanh_slope
from learner.training.networks.heads import StateGaussianHead
from learner.training.networks.initializers import Initializer
from learner.training.networks.policy import PolicyNetwork, PolicyOutput

_HALF_LOG_TWO_PI: Final = 0.5 * math.log(2.0 * math.pi)


class Draw(NamedTuple):
    """Actions drawn from a squashed policy in B states.

    Attributes:
        output: Output of the policy.
        actions: ``[B, n]`` in [-1, 1]; None without continuous actions.
        log_prob: ``[B]`` of the whole continuous action; None without continuous actions.
    """

    output: PolicyOutput
    actions: Tensor | None
    log_prob: Tensor | None


def draw(output: PolicyOutput, noise: Tensor | None) -> Draw:
    """Computes actions from a squashed policy's output and standard normal noise ``[B, n]``, with gradient."""
    if output.mean is None or output.log_std is None or noise is None:
        return Draw(output, None, None)
    raw = torch.addcmul(output.mean, output.log_std.exp(), noise)
    # The standardized draw equals the noise.
    density = torch.addcmul(output.log_std + log_tanh_slope(raw), noise, noise, value=0.5).sum(1)
    return Draw(output, torch.tanh(raw), -(density + _HALF_LOG_TWO_PI * noise.shape[1]))


class SquashedPolicyNetwork(PolicyNetwork):
    """The acting network of SAC: continuous actions are tanh of Gaussian draws; discrete ones as in every other policy.

    Args:
        spec: Observations and actions of the behavior.
        settings: The network block of the run file.
        generator: Draws the initial weights; None uses torch's default generator.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    def __init__(self, spec: BehaviorSpec, settings: NetworkSettings, generator: torch.Generator | None = None) -> None:
        super().__init__(spec, settings, generator)
        axes = spec.action.continuous_size
        initializer = Initializer(settings.initialization, generator)
        start = [settings.log_std_init or 0.0] * axes
        self.state_gaussian = StateGaussianHead(self.body.size, start, initializer) if axes else None
        self.gaussian = None  # replaced by `state_gaussian`

    def act(self, hidden: Tensor, action_masks: Tensor | None) -> PolicyOutput:
        """Computes distribution parameters from the output of the body, ``[B, size]``."""
        mean, log_std = (None, None) if self.state_gaussian is None else self.state_gaussian.forward(hidden)
        logits = None if self.categorical is None else self.categorical.forward(hidden, action_masks)
        return PolicyOutput(mean, log_std, logits, None)


def squash_of(network: PolicyNetwork) -> Squash:
    """Returns how actors squash the continuous draws of a network."""
    return Squash.TANH if isinstance(network, SquashedPolicyNetwork) else Squash.CLIP3_DIV3


def squashed(draws: Tensor, squash: Squash) -> Tensor:
    """Squashes draws as actors do before they map them onto the bounds: ``[B, n]`` in [-1, 1]."""
    return torch.tanh(draws) if squash is Squash.TANH else draws.clamp(-CLIP, CLIP) / CLIP
