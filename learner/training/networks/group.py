"""The critic of a group (Cohen et al. 2022, arXiv:2111.05992): values and counterfactual baselines over all mates.

Each agent is an entity of a set that self-attention summarizes. The *value* of a group reads the observations of all its
present agents. The *baseline* of an agent reads its own observation, and the observations and actions of its mates: what
the group could expect whatever this agent does. Both share all weights, except for the embedding of an agent with its
action. The number of present agents, as a share of the largest number seen, is appended to the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.shared.settings.network import NetworkSettings
from learner.training.networks.attention import HEADS, SelfAttention
from learner.training.networks.dense import DenseLayers, activation
from learner.training.networks.heads import ValueHead
from learner.training.networks.initializers import Initializer
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.networks.observing import build_observer
from learner.training.networks.policy import PolicyNetwork, PolicyOutput
from learner.training.networks.value import PolicyAndCritic, Sequences


class Taken(NamedTuple):
    """Actions of any shape ``[...]`` of agents.

    Attributes:
        continuous: ``[..., n]`` raw draws; None without continuous actions.
        discrete: ``[..., b]`` int64, each action plus the offset of its branch; None without branches.
    """

    continuous: Tensor | None
    discrete: Tensor | None


class Mates(NamedTuple):
    """The mates of B agents, at most m each.

    Attributes:
        observations: ``[B, m, *shape]`` each.
        actions: Their actions, ``[B, m, ...]``.
        present: ``[B, m]``, 1 where there is a mate, otherwise 0.
    """

    observations: Sequence[Tensor]
    actions: Taken
    present: Tensor


class GroupCritic(nn.Module):
    """Computes values and baselines for each reward signal.

    Args:
        spec: Observations and actions of the behavior.
        settings: The network block of the run file. Entities are as wide as the last layer, rounded up to a multiple of
            the attention's heads.
        signals: Number of reward signals.
        generator: Draws the initial weights; None uses torch's default generator.

    Raises:
        UserError: The settings do not support the observations.

    Attributes:
        memory: The recurrent part; None without memory.
        most_agents: Scalar, the largest number of agents of a group so far.
    """

    most_agents: Tensor

    def __init__(
        self, spec: BehaviorSpec, settings: NetworkSettings, signals: int, generator: torch.Generator | None = None
    ) -> None:
        super().__init__()
        initializer = Initializer(settings.initialization, generator)
        self.encoder = build_observer(spec.observations, settings, initializer)
        self._choices = sum(spec.action.discrete_branches)
        width = -(-settings.widths[-1] // HEADS) * HEADS
        actions = spec.action.continuous_size + self._choices
        gain = initializer.gains.hidden
        self.seen = initializer.linear(self.encoder.size, width, gain)
        self.acted = initializer.linear(self.encoder.size + actions, width, gain)
        self._activation = activation(settings.activation)
        self.attention = SelfAttention(None, initializer, width)
        self.layers = DenseLayers(width, settings.widths, settings.activation, initializer)
        memory = settings.memory
        self.memory = None if memory is None else Memory(self.layers.size, memory.memory_size, initializer)
        size = self.layers.size if self.memory is None else self.memory.size
        self.head = ValueHead(size + 1, signals, initializer)
        self.register_buffer("most_agents", torch.ones(()))

    def embed(self, observations: Sequence[Tensor], actions: Taken) -> tuple[Tensor, Tensor]:
        """Embeds R agents, without and with their actions: ``[R, width]`` each."""
        encoded = self.encoder.encode(list(observations)).values
        return self._of(self.seen, encoded), self._of(self.acted, torch.cat((encoded, *self._flat(actions)), dim=1))

    def states(self, entities: Tensor, present: Tensor) -> Tensor:
        """Summarizes embedded agents ``[B, 1 + m, width]``, of which some are present, to ``[B, units]``."""
        return self.layers.forward(self.attention(entities, 1.0 - present))

    def outputs(self, hidden: Tensor, present: Tensor) -> Tensor:
        """Computes outputs of the heads ``[B, signals]``.

        Args:
            hidden: ``[B, size]``, of `states`, or of the memory after them.
            present: ``[B, 1 + m]``.
        """
        share = present.sum(1, keepdim=True) * (2.0 / self.most_agents) - 1.0
        return self.head.forward(torch.cat((hidden, share), dim=1))

    def judge(
        self,
        observations: Sequence[Tensor],
        mates: Mates | None,
        sequences: tuple[Unrolled, Unrolled] | None = None,
    ) -> Tensor:
        """Computes values and baselines of B agents.

        Args:
            observations: Their observations, ``[B, *shape]`` each.
            mates: Their mates; None if all are alone.
            sequences: Layouts of the sequences with the memories of values and of baselines; required with memory.

        Returns:
            ``[B, 2 * signals]``: the values, then the baselines.
        """
        rows = observations[0].shape[0]
        if mates is None or not mates.present.shape[1]:
            seen = self._of(self.seen, self.encoder.encode(list(observations)).values).unsqueeze(1)
            entities, present = torch.cat((seen, seen)), seen.new_ones(rows, 1)
        else:
            entities, present = self._sets(observations, mates)
        hidden = self.states(entities, torch.cat((present, present)))
        if self.memory is not None and sequences is not None:
            halves = zip(torch.split(hidden, rows), sequences, strict=True)
            hidden = torch.cat([self.memory.unroll(half, sequence)[0] for half, sequence in halves])
        found = self.outputs(hidden, torch.cat((present, present)))
        return torch.cat(torch.split(found, rows), dim=1)

    def _sets(self, observations: Sequence[Tensor], mates: Mates) -> tuple[Tensor, Tensor]:
        """Returns the entities of B values and of B baselines ``[2 * B, 1 + m, width]``, and who is present."""
        rows, count = mates.present.shape
        everyone = [
            torch.cat((own.unsqueeze(1), others), dim=1).flatten(0, 1)
            for own, others in zip(observations, mates.observations, strict=True)
        ]
        encoded = self.encoder.encode(everyone).values.reshape(rows, 1 + count, -1)
        seen = self._of(self.seen, encoded)
        acted = self._of(self.acted, torch.cat((encoded[:, 1:], *self._flat(mates.actions)), dim=2))
        present = torch.cat((torch.ones_like(mates.present[:, :1]), mates.present), dim=1)
        return torch.cat((seen, torch.cat((seen[:, :1], acted), dim=1))), present

    def _of(self, layer: nn.Linear, values: Tensor) -> Tensor:
        embedded: Tensor = self._activation(nn.functional.linear(values, layer.weight, layer.bias))
        return embedded

    def _flat(self, actions: Taken) -> list[Tensor]:
        """Returns continuous actions, and discrete ones as one-hot blocks."""
        parts = [] if actions.continuous is None else [actions.continuous]
        if actions.discrete is not None:
            chosen = torch.zeros((*actions.discrete.shape[:-1], self._choices), device=actions.discrete.device)
            parts.append(chosen.scatter(-1, actions.discrete, 1.0))
        return parts

    @torch.no_grad()
    def note_agents(self, present: Tensor) -> None:
        """Notes the numbers of agents in groups ``[B, 1 + m]``; nothing waits for the device."""
        self.most_agents.copy_(torch.maximum(self.most_agents, present.sum(1).max()))


class GroupActorCritic(PolicyAndCritic):
    """A policy and the critic of its groups.

    Args:
        policy: The acting network.
        critic: The critic.
    """

    def __init__(self, policy: PolicyNetwork, critic: GroupCritic) -> None:
        super().__init__(policy)
        self.critic = critic

    @property
    def value_head(self) -> ValueHead:
        """The head that computes values and baselines."""
        return self.critic.head

    def forward(
        self,
        observations: Sequence[Tensor],
        action_masks: Tensor | None,
        mates: Mates | None,
        sequences: Sequences | None = None,
    ) -> tuple[PolicyOutput, Tensor]:
        """Computes distribution parameters, and values and baselines ``[B, 2 * signals]`` (see `GroupCritic.judge`).

        Args:
            observations: ``[B, *shape]`` each.
            action_masks: ``[B, sum(branches)]``; None = all allowed.
            mates: The mates of the B agents.
            sequences: Layout of the sequences; required with memory. A row of the critic's memories is that of the
                values, then that of the baselines.
        """
        output = self.policy.unroll(observations, action_masks, None if sequences is None else sequences.of_policy())
        return output, self.critic.judge(observations, mates, _memories(sequences))


def _memories(sequences: Sequences | None) -> tuple[Unrolled, Unrolled] | None:
    if sequences is None or sequences.critic is None:
        return None
    values, baselines = sequences.critic.chunk(2, dim=1)
    return Unrolled(sequences.batch_sizes, values), Unrolled(sequences.batch_sizes, baselines)
