"""A policy whose draws are squashed by tanh, with a deviation that depends on what is observed; SAC acts by it."""

from __future__ import annotations

from typing import Final, NamedTuple

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.dense import linear_backward
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
        return self.mean(hidden), torch.clamp(self.log_std(hidden), LOG_STD_MIN, LOG_STD_MAX)

    def backward(self, hidden: Tensor, to_mean: Tensor, to_log_std: Tensor) -> Tensor:
        """Goes back from the derivatives of mean and log standard deviation, ``[B, actions]`` each.

        That of a log standard deviation at one of its bounds must be 0 (`within_bounds`).
        """
        linear_backward(self.mean, hidden, to_mean)
        linear_backward(self.log_std, hidden, to_log_std)
        return to_mean.mm(self.mean.weight).addmm_(to_log_std, self.log_std.weight)


def within_bounds(log_std: Tensor) -> Tensor:
    """Says where a log standard deviation is not at one of its bounds, and therefore moves with the parameters."""
    return (log_std > LOG_STD_MIN) & (log_std < LOG_STD_MAX)


class HeadGradients(NamedTuple):
    """Derivatives of a loss with respect to a policy's output; None where there is no such part.

    Attributes:
        mean: ``[B, n]``.
        log_std: ``[B, n]``, 0 where it is at a bound.
        scores: ``[B, sum(branches)]``, with respect to masked scores before they are normalized.
    """

    mean: Tensor | None
    log_std: Tensor | None
    scores: Tensor | None


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
        mean, log_std = (None, None) if self.state_gaussian is None else self.state_gaussian(hidden)
        logits = None if self.categorical is None else self.categorical(hidden, action_masks)
        return PolicyOutput(mean, log_std, logits, None)

    def heads_backward(self, hidden: Tensor, outer: HeadGradients, action_masks: Tensor | None) -> Tensor:
        """Writes the gradients of the heads and returns the derivative with respect to ``hidden``.

        Args:
            hidden: ``[B, size]``, what the heads saw.
            outer: the loss's derivatives with respect to what they computed.
            action_masks: as they were given.
        """
        found: list[Tensor] = []
        gaussian, categorical = self.state_gaussian, self.categorical
        if gaussian is not None and outer.mean is not None and outer.log_std is not None:
            found.append(gaussian.backward(hidden, outer.mean, outer.log_std))
        if categorical is not None and outer.scores is not None:
            found.append(categorical.backward(hidden, outer.scores, action_masks))
        return found[0] if len(found) == 1 else found[0] + found[1]


def squash_of(network: PolicyNetwork) -> Squash:
    """Returns what actors do to the continuous draws of a network."""
    return Squash.TANH if isinstance(network, SquashedPolicyNetwork) else Squash.CLIP3_DIV3
