"""The networks of SAC: what acts, twin critics with their slow copies, and the temperatures."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch
from rollcast.specs import ActionSpec
from torch import Tensor, nn

from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.trainers.sac.loss import Alphas, Entropies

DISCRETE_ENTROPY_SHARE: Final = 0.2
"""Share of the largest entropy of a branch that is kept, as in ML-Agents."""

_SMALLEST_ALPHA: Final = 1e-8
"""A temperature of 0 has no logarithm."""


class Temperatures(nn.Module):
    """Logarithms of the temperatures, which are learned, and the entropies that they hold the policy at.

    These are ``-n`` for n continuous axes (Haarnoja et al. 2018, arXiv:1812.05905, appendix D), and 0.2 of the logarithm of the
    number of choices for each branch, as in ML-Agents, but of those that are allowed: where a mask leaves one choice no
    temperature could bring back any entropy, and it would grow without end.

    Args:
        action: what the behavior does.
        initial: of every temperature.
    """

    choice_branches: Tensor
    axes_target: Tensor
    branch_targets: Tensor

    def __init__(self, action: ActionSpec, initial: float) -> None:
        super().__init__()
        start = math.log(max(initial, _SMALLEST_ALPHA))
        branches = list(action.discrete_branches)
        self._branches = branches
        self.continuous = nn.Parameter(torch.full((), start)) if action.continuous_size else None
        self.discrete = nn.Parameter(torch.full((len(branches),), start)) if branches else None
        choices = [branch for branch, size in enumerate(branches) for _ in range(size)]
        constants = {
            "choice_branches": torch.tensor(choices, dtype=torch.int64),
            "axes_target": torch.tensor(-float(action.continuous_size)),
            "branch_targets": torch.tensor([DISCRETE_ENTROPY_SHARE * math.log(size) for size in branches]),
        }
        for name, value in constants.items():
            self.register_buffer(name, value, persistent=False)

    def logarithms(self) -> Entropies:
        """Returns what is learned: for each entropy the logarithm of its temperature."""
        return Entropies(self.continuous, self.discrete)

    @torch.no_grad()
    def alphas(self) -> Alphas:
        """Returns the temperatures themselves."""
        discrete = None if self.discrete is None else self.discrete.exp().index_select(0, self.choice_branches)
        return Alphas(None if self.continuous is None else self.continuous.exp(), discrete)

    def targets(self, masks: Tensor | None) -> Entropies:
        """Returns the entropies to keep, as means over the steps of masks ``[B, A]``; None allows every choice."""
        if masks is None:
            return Entropies(self.axes_target, self.branch_targets)
        allowed = [part.sum(1, dtype=torch.float32) for part in torch.split(masks, self._branches, 1)]
        logarithms = torch.stack(allowed, 1).clamp(min=1.0).log()
        return Entropies(self.axes_target, DISCRETE_ENTROPY_SHARE * logarithms.mean(0))


class SACNetworks(nn.Module):
    """All of them; one ``state_dict`` for a checkpoint.

    Args:
        policy: what acts.
        critic: twin critics.
        temperatures: of the policy's entropy.

    Attributes:
        target: a copy of the critics.
        branches: number of choices of each discrete branch.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic, temperatures: Temperatures) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(False)
        self.temperatures = temperatures
        self.branches = tuple(policy.spec.action.discrete_branches)
