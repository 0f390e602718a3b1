"""The critic: a separate network, or heads on the policy's body; and actor and critic combined."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.body import Body
from learner.training.networks.heads import ValueHead
from learner.training.networks.initializers import Initializer
from learner.training.networks.lstm import Unrolled
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.networks.tower import BoardValueHead


def value_head(body: Body, settings: NetworkSettings, signals: int, initializer: Initializer) -> ValueHead:
    """Builds the value head for a body's output."""
    if body.planes is None or settings.tower is None:
        return ValueHead(body.size, signals, initializer)
    return BoardValueHead(body.planes, settings.tower, signals, initializer)


class ValueNetwork(nn.Module):
    """Computes one value for each reward signal from all observations, with a separate body.

    Args:
        spec: Observations of the behavior.
        settings: The network block of the run file.
        signals: Number of reward signals.
        generator: Draws the initial weights; None uses torch's default generator.
    """

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, signals: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.body = Body(spec.observations, settings, initializer)
        self.head = value_head(self.body, settings, signals, initializer)

    def forward(self, observations: Sequence[Tensor], sequences: Unrolled | None = None) -> Tensor:
        """Computes values ``[B, signals]`` of observations ``[B, *shape]``; with a memory, of packed sequences."""
        return self.head.forward(self.body.forward(observations, sequences))


class Sequences(NamedTuple):
    """The layout of B packed steps as S sequences, for recurrent actor-critics; see `learner.training.networks.lstm.Unrolled`.

    Attributes:
        batch_sizes: ``[L]`` int64 on the CPU.
        policy: Memories of the policy, ``[S, memory_size]``.
        critic: Memories of a critic with separate memory, ``[S, memory_size]``; None for a head on the policy's body.
    """

    batch_sizes: Tensor
    policy: Tensor
    critic: Tensor | None

    def of_policy(self) -> Unrolled:
        """Returns the layout with the policy's memories."""
        return Unrolled(self.batch_sizes, self.policy)

    def of_critic(self) -> Unrolled | None:
        """Returns the layout with the memories of a critic's body; None without them."""
        return None if self.critic is None else Unrolled(self.batch_sizes, self.critic)


class PolicyAndCritic(nn.Module):
    """A policy and a critic of any kind.

    Args:
        policy: The acting network.
    """

    def __init__(self, policy: PolicyNetwork) -> None:
        super().__init__()
        self.policy = policy

    @property
    def memory_size(self) -> int:
        """Number of values in a memory; 0 without memory."""
        return self.policy.memory_size

    @property
    def value_head(self) -> ValueHead:
        """The head that computes the values."""
        raise NotImplementedError


class ActorCritic(PolicyAndCritic):
    """A policy and its critic; with ``shared_critic`` the critic is a head on the policy's body.

    Args:
        policy: The acting network.
        critic: A separate network, or a head for the policy's body.
    """

    def __init__(self, policy: PolicyNetwork, critic: ValueNetwork | ValueHead) -> None:
        super().__init__(policy)
        self.critic = critic

    def forward(
        self, observations: Sequence[Tensor], action_masks: Tensor | None, sequences: Sequences | None = None
    ) -> tuple[PolicyOutput, Tensor]:
        """Computes distribution parameters and values ``[B, signals]``.

        Args:
            observations: ``[B, *shape]`` each.
            action_masks: ``[B, sum(branches)]``; None = all allowed.
            sequences: Layout of the sequences; required with memory, otherwise not allowed.
        """
        of_policy, of_critic = _parts(sequences)
        policy, critic = self.policy, self.critic
        encoded = policy.body.encoder.encode(list(observations))
        hidden = policy.body.compute(encoded, of_policy)
        if isinstance(critic, ValueHead):
            values = critic.forward(hidden)
        else:
            # Encoders without weights compute the same from the same observations in both networks: an observation's
            # normalizers share their statistics.
            is_same = critic.body.encodes_alike and critic.body.reads == policy.reads
            seen = encoded if is_same else critic.body.encoder.encode(list(observations))
            values = critic.head.forward(critic.body.compute(seen, of_critic))
        return policy.act(hidden, action_masks), values

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes only the values ``[B, signals]``, for networks without memory."""
        inputs = self.policy.body(observations) if isinstance(self.critic, ValueHead) else observations
        values: Tensor = self.critic(inputs)
        return values

    @property
    def critic_body(self) -> Body:
        """The body from whose output the values are computed."""
        return self.policy.body if isinstance(self.critic, ValueHead) else self.critic.body

    @property
    def value_head(self) -> ValueHead:
        """The head that computes the values from the output of `critic_body`."""
        return self.critic if isinstance(self.critic, ValueHead) else self.critic.head


def _parts(sequences: Sequences | None) -> tuple[Unrolled | None, Unrolled | None]:
    return (None, None) if sequences is None else (sequences.of_policy(), sequences.of_critic())


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
        policy: The policy.
        settings: The network block of the run file.
        signals: Number of reward signals.
        shared: Whether the critic is a head on the policy's body.
        generator: Draws the initial weights; None uses torch's default generator.
    """
    if shared:
        return value_head(policy.body, settings, signals, Initializer(settings.initialization, generator))
    return ValueNetwork(policy.spec, settings, signals, generator)
