"""The networks of SAC: what acts, twin critics with their slow copies, and the temperatures."""

from __future__ import annotations

import copy
import math
from typing import Final

import torch
from rollcast.specs import ActionSpec
from torch import Tensor, nn

from learner.networks.encoders import VectorEncoder
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.optimizers.adam import flatten
from learner.trainers.sac.loss import Alphas, Entropies

DISCRETE_ENTROPY_SHARE: Final = 0.2
"""Share of the largest entropy of a branch that is kept, as in ML-Agents."""

_SMALLEST_ALPHA: Final = 1e-8
"""A temperature of 0 has no logarithm."""


class Temperatures(nn.Module):
    """Logarithms of the temperatures, which are learned.

    Args:
        action: what the behavior does.
        initial: of every temperature.
    """

    choice_branches: Tensor

    def __init__(self, action: ActionSpec, initial: float) -> None:
        super().__init__()
        start = math.log(max(initial, _SMALLEST_ALPHA))
        branches = torch.tensor(action.discrete_branches, dtype=torch.int64)
        self.continuous = nn.Parameter(torch.full((), start)) if action.continuous_size else None
        self.discrete = nn.Parameter(torch.full((len(branches),), start)) if len(branches) else None
        choices = torch.repeat_interleave(torch.arange(len(branches)), branches)
        self.register_buffer("choice_branches", choices, persistent=False)

    def logarithms(self) -> Entropies:
        """Returns what is learned: for each entropy the logarithm of its temperature."""
        return Entropies(self.continuous, self.discrete)

    @torch.no_grad()
    def alphas(self) -> Alphas:
        """Returns the temperatures themselves."""
        discrete = None if self.discrete is None else self.discrete.exp().index_select(0, self.choice_branches)
        return Alphas(None if self.continuous is None else self.continuous.exp(), discrete)


class TargetEntropies:
    """The entropies that the temperatures hold the policy at.

    ``-n`` for n continuous axes (Haarnoja et al. 2018, arXiv:1812.05905, appendix D), and 0.2 of the logarithm of the
    number of choices for each branch, as in ML-Agents, but of those that are allowed: where a mask leaves one choice no
    temperature could bring back any entropy, and it would grow without end.

    Args:
        action: what the behavior does.
        device: where everything is.
    """

    def __init__(self, action: ActionSpec, device: torch.device) -> None:
        self._branches = list(action.discrete_branches)
        sizes = torch.tensor(self._branches, dtype=torch.float32, device=device)
        self._all_allowed = Entropies(
            torch.tensor(-float(action.continuous_size), device=device), DISCRETE_ENTROPY_SHARE * sizes.log()
        )

    def where(self, masks: Tensor | None) -> Entropies:
        """Returns them, as means over the steps of masks ``[B, A]``; None allows every choice."""
        if masks is None:
            return self._all_allowed
        allowed = [part.sum(1, dtype=torch.float32) for part in torch.split(masks, self._branches, 1)]
        logarithms = torch.stack(allowed, 1).clamp(min=1.0).log()
        return self._all_allowed._replace(discrete=DISCRETE_ENTROPY_SHARE * logarithms.mean(0))


class SACNetworks(nn.Module):
    """All of them; one ``state_dict`` for a checkpoint.

    Args:
        policy: what acts.
        critic: twin critics.
        temperatures: of the policy's entropy.
    """

    def __init__(self, policy: SquashedPolicyNetwork, critic: TwinCritic, temperatures: Temperatures) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.target = copy.deepcopy(critic).requires_grad_(requires_grad=False)
        self.temperatures = temperatures

    def flatten_target(self) -> Tensor:
        """Makes the target's parameters views of one vector ``[P]``, in the critic's order, and returns it."""
        return flatten(list(self.target.parameters()))

    def vector_encoders(self) -> list[tuple[int, VectorEncoder]]:
        """Returns every encoder that normalizes, with the position of its observation."""
        own = list(self.policy.body.encoder.normalizing.items())
        return own + self.critic.vector_encoders() + self.target.vector_encoders()
