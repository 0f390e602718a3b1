"""The critic: a network of its own, or heads on the policy's body."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.body import Body
from learner.networks.encoders import VectorEncoder
from learner.networks.heads import ValueHead
from learner.networks.initializers import Initializer
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.settings.network import NetworkSettings


class ValueNetwork(nn.Module):
    """Observations to one value for each reward signal, with a body of its own.

    Args:
        spec: what the behavior sees.
        settings: the network block of the run file.
        signals: number of reward signals.
        generator: where initial weights come from; None is torch's own.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, signals: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.body = Body(spec.observations, settings, initializer)
        self.head = ValueHead(self.body.size, signals, initializer)

    def forward(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes values ``[B, signals]`` of observations ``[B, *shape]``."""
        values: Tensor = self.head(self.body(observations))
        return values


class ActorCritic(nn.Module):
    """A policy and its critic; with ``shared_critic`` the critic is a head on the policy's body.

    Args:
        policy: the network that acts.
        critic: a network of its own, or a head for the policy's body.
    """

    def __init__(self, policy: PolicyNetwork, critic: ValueNetwork | ValueHead) -> None:
        super().__init__()
        self.policy = policy
        self.critic = critic
        self.shared = isinstance(critic, ValueHead)

    def forward(self, observations: Sequence[Tensor], action_masks: Tensor | None) -> tuple[PolicyOutput, Tensor]:
        """Computes distribution parameters and values ``[B, signals]``."""
        hidden = self.policy.body(observations)
        values = self.critic(hidden) if self.shared else self.critic(observations)
        return self.policy.act(hidden, action_masks), values

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes values ``[B, signals]`` alone."""
        inputs = self.policy.body(observations) if self.shared else observations
        values: Tensor = self.critic(inputs)
        return values

    def vector_encoders(self) -> list[tuple[int, VectorEncoder]]:
        """Returns every encoder that normalizes, with the position of its observation; the critic's included."""
        found = list(self.policy.body.encoder.normalizing.items())
        if isinstance(self.critic, ValueNetwork):
            found += self.critic.body.encoder.normalizing.items()
        return found


def build_critic(
    policy: PolicyNetwork,
    settings: NetworkSettings,
    *,
    signals: int,
    shared: bool,
    generator: torch.Generator | None = None,
) -> ValueNetwork | ValueHead:
    """Builds the critic of a policy.

    Args:
        policy: the policy.
        settings: the network block of the run file.
        signals: number of reward signals.
        shared: whether the critic is a head on the policy's body.
        generator: where initial weights come from; None is torch's own.
    """
    if shared:
        return ValueHead(policy.body.size, signals, Initializer(settings.initialization, generator))
    return ValueNetwork(policy.spec, settings, signals, generator)
