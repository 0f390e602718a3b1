"""The critic: a network of its own, or heads on the policy's body; and actor and critic as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.body import Body
from learner.networks.heads import ValueHead
from learner.networks.initializers import Initializer
from learner.networks.lstm import Unrolled
from learner.networks.policy import PolicyNetwork, PolicyOutput
from learner.networks.tower import BoardValueHead
from learner.settings.network import NetworkSettings


def value_head(body: Body, settings: NetworkSettings, signals: int, initializer: Initializer) -> ValueHead:
    """Builds the head that values what a body computes."""
    if body.planes is None or settings.tower is None:
        return ValueHead(body.size, signals, initializer)
    return BoardValueHead(body.planes, settings.tower, signals, initializer)


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
        self.head = value_head(self.body, settings, signals, initializer)

    def forward(self, observations: Sequence[Tensor], sequences: Unrolled | None = None) -> Tensor:
        """Computes values ``[B, signals]`` of observations ``[B, *shape]``; packed sequences with a memory."""
        return self.head.forward(self.body.forward(observations, sequences))


class Sequences(NamedTuple):
    """How B packed steps are S sequences, for recurrent actor-critics; see `learner.networks.lstm.Unrolled`.

    Attributes:
        batch_sizes: ``[L]`` int64 on the CPU.
        policy: the policy's memories, ``[S, memory_size]``.
        critic: those of a critic with a memory of its own, ``[S, memory_size]``; None for a head on the policy's.
    """

    batch_sizes: Tensor
    policy: Tensor
    critic: Tensor | None

    def of_policy(self) -> Unrolled:
        """Returns what the policy begins with."""
        return Unrolled(self.batch_sizes, self.policy)

    def of_critic(self) -> Unrolled | None:
        """Returns what a critic's own body begins with."""
        return None if self.critic is None else Unrolled(self.batch_sizes, self.critic)


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

    def forward(
        self, observations: Sequence[Tensor], action_masks: Tensor | None, sequences: Sequences | None = None
    ) -> tuple[PolicyOutput, Tensor]:
        """Computes distribution parameters and values ``[B, signals]``.

        Args:
            observations: ``[B, *shape]`` each.
            action_masks: ``[B, sum(branches)]``, or None.
            sequences: how they are sequences; needed with a memory, and only with one.
        """
        of_policy, of_critic = _parts(sequences)
        policy, critic = self.policy, self.critic
        encoded = policy.body.encoder.encode(list(observations))
        hidden = policy.body.compute(encoded, of_policy)
        if isinstance(critic, ValueHead):
            values = critic.forward(hidden)
        else:
            # Encoders without weights are the same in both: the normalizers of an observation share their statistics.
            seen = encoded if critic.body.encodes_alike else critic.body.encoder.encode(list(observations))
            values = critic.head.forward(critic.body.compute(seen, of_critic))
        return policy.act(hidden, action_masks), values

    def values(self, observations: Sequence[Tensor]) -> Tensor:
        """Computes values ``[B, signals]`` alone; of networks without memory."""
        inputs = self.policy.body(observations) if isinstance(self.critic, ValueHead) else observations
        values: Tensor = self.critic(inputs)
        return values

    @property
    def memory_size(self) -> int:
        """Numbers of a memory; 0 without."""
        return self.policy.memory_size

    @property
    def critic_body(self) -> Body:
        """The body whose numbers the values are computed from."""
        return self.policy.body if isinstance(self.critic, ValueHead) else self.critic.body

    @property
    def value_head(self) -> ValueHead:
        """What computes values from these numbers."""
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
        policy: the policy.
        settings: the network block of the run file.
        signals: number of reward signals.
        shared: whether the critic is a head on the policy's body.
        generator: where initial weights come from; None is torch's own.
    """
    if shared:
        return value_head(policy.body, settings, signals, Initializer(settings.initialization, generator))
    return ValueNetwork(policy.spec, settings, signals, generator)
