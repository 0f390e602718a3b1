"""The networks of SAC: the policy, twin critics with slowly following copies, and the temperatures."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch
from rollcast.specs import ActionSpec
from torch import Tensor, nn

from learner.training.networks.squashed import SquashedPolicyNetwork
from learner.training.networks.twin import TwinCritic
from learner.training.trainers.sac.loss import Alphas, Entropies

DISCRETE_ENTROPY_SHARE: Final = 0.2
"""Target entropy of a branch, as a share of its largest entropy; as in ML-Agents."""

_SMALLEST_ALPHA: Final = 1e-8
"""Least initial temperature: 0 has no logarithm."""


class Temperatures(nn.Module):
    """Holds the logarithms of the temperatures, learned or fixed, and the target entropies of the policy.

    The targets are ``-n`` for n continuous axes (Haarnoja et al. 2018, arXiv:1812.05905, appendix D) unless another one
    is given, and for each branch 0.2 of the logarithm of the number of choices, as in ML-Agents. Only allowed choices
    count: if a mask leaves one choice, no temperature could restore entropy, and the temperature would grow without end.

    Args:
        action: Actions of the behavior.
        initial: Initial value of every temperature.
        learns: False keeps the initial values, whatever is loaded.
        axes_target: Target entropy of the continuous action in nats; None is ``-n``.

    Attributes:
        learns: Whether the temperatures are learned.
    """

    choice_branches: Tensor
    axes_target: Tensor
    branch_targets: Tensor

    def __init__(
        self, action: ActionSpec, initial: float, *, learns: bool = True, axes_target: float | None = None
    ) -> None:
        super().__init__()
        self.learns = learns
        self._start = start = math.log(max(initial, _SMALLEST_ALPHA))
        branches = list(action.discrete_branches)
        self._branches = branches
        self.continuous = nn.Parameter(torch.full((), start)) if action.continuous_size else None
        self.discrete = nn.Parameter(torch.full((len(branches),), start)) if branches else None
        choices = [branch for branch, size in enumerate(branches) for _ in range(size)]
        constants = {
            "choice_branches": torch.tensor(choices, dtype=torch.int64),
            "axes_target": torch.tensor(-float(action.continuous_size) if axes_target is None else axes_target),
            "branch_targets": torch.tensor([DISCRETE_ENTROPY_SHARE * math.log(size) for size in branches]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)
        self.requires_grad_(learns)

    @torch.no_grad()
    def reset_fixed(self) -> None:
        """Restores the initial temperatures if they are not learned; call it after loading a state."""
        if not self.learns:
            for logarithm in self.parameters():
                logarithm.fill_(self._start)

    def logarithms(self) -> Entropies:
        """Returns the logarithm of each temperature."""
        return Entropies(self.continuous, self.discrete)

    @torch.no_grad()
    def alphas(self) -> Alphas:
        """Returns the temperatures."""
        discrete = None if self.discrete is None else self.discrete.exp().index_select(0, self.choice_branches)
        return Alphas(None if self.continuous is None else self.continuous.exp(), discrete)

    def targets(self, masks: Tensor | None) -> Entropies:
        """Returns the target entropies as means over the steps of masks ``[B, A]``; None allows every choice."""
        if masks is None:
            return Entropies(self.axes_target, self.branch_targets)
        allowed = [part.sum(1, dtype=torch.float32) for part in torch.split(masks, self._branches, 1)]
        logarithms = torch.stack(allowed, 1).clamp(min=1.0).log()
        return Entropies(self.axes_target, DISCRETE_ENTROPY_SHARE * logarithms.mean(0))


class SACNetworks(nn.Module):
    """Holds all networks of SAC in one ``state_dict`` for a checkpoint.

    Args:
        policy: The acting network.
        critic: Twin critics.
        temperatures: Temperatures of the policy's entropy.

    Attributes:
        target: A copy of the critics.
        branches: Number of choices of each discrete branch.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic, temperatures: Temperatures) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)
        self.temperatures = temperatures
        self.branches = tuple(policy.spec.action.discrete_branches)
