"""The POCA trainer: PPO for groups of agents, whose critic sees all mates.

Its loss:

| symbol | shape | meaning |
|---|---|---|
| B, F, K | | steps in the minibatch, action factors (axes and branches), reward signals |
| V, b | [B, K] | value of the group, and counterfactual baseline of the agent |
| R | [B, K] | lambda-returns of the group's value |
| b_old | [B, K] | baseline before the update |
| A | [B, 1] | R - b_old, mean over signals, normalized unless the run file says otherwise |
| log mu | [B, F] or [B, 1] | log-probability recorded by the actor, per factor or of the whole action |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.link.to_trainers import Experience
from learner.shared.settings.hyperparameters import POCAHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.buffers.batches import RowSource
from learner.training.buffers.buffer import Members, UpdateRows
from learner.training.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    on_policy_columns,
)
from learner.training.networks.group import GroupActorCritic, GroupCritic, Mates, Taken
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.networks.policy import PolicyNetwork, PolicyOutput, build_policy
from learner.training.networks.value import Sequences
from learner.training.trainers.actor_critic.experience import Estimates, ExperienceMaker, Recorded
from learner.training.trainers.actor_critic.loss import (
    Batch,
    Coefficients,
    LossTerms,
    actor_critic_loss,
    clipped_surrogate,
)
from learner.training.trainers.actor_critic.recurrence import CarriedMemories
from learner.training.trainers.actor_critic.targets import CounterfactualAdvantages, TargetRule
from learner.training.trainers.actor_critic.trainer import ActorCriticTrainer

COUNTED_MATES: Final = 3
"""Mates of each agent that are counted. The size of groups is not known before experience arrives."""
BASELINE = 0.5
"""Weight of the baseline loss in proportion to the value loss, as in ML-Agents."""
OF_MATES: Final = "mates/"
"""Prefix of the columns of mates, ``[B, m, ...]`` in a minibatch."""
PRESENT: Final = "mates/present"


class GroupExperienceMaker(ExperienceMaker):
    """Evaluates the taken segments with a `GroupActorCritic`; see `ExperienceMaker` for the arguments."""

    def __init__(self, spec: Any, network: Any, *arguments: Any, **options: Any) -> None:
        super().__init__(spec, network, *arguments, **options)
        if not isinstance(network, GroupActorCritic):
            raise TypeError(f"{type(network).__name__} is not a GroupActorCritic")
        self._critic = network.critic
        self._memories = CarriedMemories(self._rows_at_once), CarriedMemories(self._rows_at_once)

    def forget(self) -> None:
        """Forgets the critic's memories of running episodes."""
        for memories in self._memories:
            memories.forget()

    def recorded(self, plan: UpdateRows, storage: Mapping[str, Tensor], version: int) -> Recorded:
        """Returns views of the ring's columns, also for the mates of each step; see `ExperienceMaker.recorded`."""
        found = super().recorded(plan, storage, version)
        members = _members(plan)
        mates = members.rows.index_select(0, plan.steps)[:, 1:]
        if not mates.shape[1]:
            return found
        rows = plan.rows[mates]
        # Mates act at steps, never at final rows.
        steps = (plan.is_step.cumsum(0) - 1).long()[mates]
        sources: dict[str, RowSource] = {
            OF_MATES + name: RowSource(storage[name], rows)
            for name in (*self.observations, CONTINUOUS_ACTION)
            if name in storage
        }
        if DISCRETE_ACTION in found.sources:
            sources[OF_MATES + DISCRETE_ACTION] = RowSource(found.sources[DISCRETE_ACTION].values, steps)
        sources[PRESENT] = RowSource(members.present.index_select(0, plan.steps)[:, 1:])
        return found._replace(sources={**found.sources, **sources})

    def estimate(self, plan: UpdateRows, storage: Mapping[str, Tensor], recorded: Recorded) -> Estimates:
        """Evaluates all rows, with each agent encoded once."""
        members, critic = _members(plan), self._critic
        critic.note_agents(members.present)
        if self._reduce.ranks > 1:
            critic.most_agents.copy_(self._reduce.gather(critic.most_agents).amax(0))
        embedded = [self._embed(storage, rows) for rows in torch.split(plan.rows, self._rows_at_once)]
        seen, acted = (torch.cat(parts) for parts in zip(*embedded, strict=True))
        states = []
        for rows, present in zip(
            torch.split(members.rows, self._rows_at_once), torch.split(members.present, self._rows_at_once), strict=True
        ):
            own = seen.index_select(0, rows[:, 0]).unsqueeze(1)
            others, flat = rows[:, 1:], rows[:, 1:].flatten()
            shape = (*others.shape, seen.shape[1])
            values = torch.cat((own, seen.index_select(0, flat).reshape(shape)), dim=1)
            baselines = torch.cat((own, acted.index_select(0, flat).reshape(shape)), dim=1)
            states.append((critic.states(values, present), critic.states(baselines, present)))
        of_values, of_baselines = (torch.cat(parts) for parts in zip(*states, strict=True))
        table = recorded.table
        if critic.memory is not None and table is not None:
            of_values, values_before = self._memories[0].unroll(critic.memory, of_values, plan, table.cut)
            of_baselines, baselines_before = self._memories[1].unroll(critic.memory, of_baselines, plan, table.cut)
            table = replace(table, critic=torch.cat((values_before, baselines_before), dim=1))
        present = members.present
        return Estimates(critic.outputs(of_values, present), table, critic.outputs(of_baselines, present))

    def _embed(self, storage: Mapping[str, Tensor], rows: Tensor) -> tuple[Tensor, Tensor]:
        """Embeds rows of the ring without and with their actions; final rows have none that matters."""
        continuous, discrete = (
            storage[name].index_select(0, rows) if name in storage else None
            for name in (CONTINUOUS_ACTION, DISCRETE_ACTION)
        )
        if discrete is not None:
            discrete = discrete + self._offsets
        observations = [storage[name].index_select(0, rows) for name in self.observations]
        return self._critic.embed(observations, Taken(continuous, discrete))


class POCATrainer(ActorCriticTrainer):
    """Trains cooperating agents with MA-POCA (Cohen et al. 2022, arXiv:2111.05992); see ``poca.md``.

    Args:
        context: Everything the trainer receives from the run.

    Raises:
        UserError: The settings do not fit the behavior.
    """

    settings_model = POCAHyperparameters
    maker_type = GroupExperienceMaker

    @classmethod
    def build_networks(
        cls, spec: BehaviorSpec, settings: TrainerSettings, generator: torch.Generator | None
    ) -> GroupActorCritic:
        """Builds policy and critic on torch's default device; see `ActorCriticTrainer.build_networks`."""
        network = settings.network_settings
        signals = len(settings.reward_signals.active())
        policy = build_policy(PolicyNetwork, spec, network, generator)
        return GroupActorCritic(policy, GroupCritic(spec, network, signals, generator))

    @classmethod
    def minibatch_bytes(cls, network: nn.Module, spec: BehaviorSpec, settings: TrainerSettings) -> KeptBytes:
        """Counts the bytes that a minibatch takes; see `ActorCriticTrainer.minibatch_bytes`."""
        del settings
        if not isinstance(network, GroupActorCritic):
            raise TypeError(f"{type(network).__name__} is not a GroupActorCritic")
        return minibatch_bytes(network, spec)

    def evaluate(self, columns: Mapping[str, Tensor], sequences: Sequences | None) -> tuple[PolicyOutput, Tensor]:
        """Computes the outputs of policy and critic for a minibatch with the mates of its agents."""
        network, names = self.network, self._maker.observations
        if not isinstance(network, GroupActorCritic):
            raise TypeError(f"{type(network).__name__} is not a GroupActorCritic")
        observations = [columns[name] for name in names]
        return network.forward(observations, columns.get(ACTION_MASK), mates_of(columns, names), sequences)

    def loss(self, output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
        """Computes the loss."""
        return poca_loss(output, values, batch, coefficients)

    def target_rule(self) -> TargetRule:
        """Returns the rule that computes advantages and returns."""
        return CounterfactualAdvantages(self.own_hyperparameters(self.context, POCAHyperparameters).lambd)

    def _note_group_rewards(self, item: Experience) -> None:
        """Gives no warning: this trainer assigns credit among group members."""


def minibatch_bytes(network: GroupActorCritic, spec: BehaviorSpec) -> KeptBytes:
    """Counts the bytes of a minibatch whose agents have `COUNTED_MATES` mates each.

    Args:
        network: Network on the meta device.
        spec: Observations and actions of the behavior.
    """
    observations = tuple(f"obs/{observation.name}" for observation in spec.observations)

    def columns(rows: int) -> dict[str, Tensor]:
        own = {
            column.name: torch.zeros((rows, *column.shape), dtype=column.dtype) for column in on_policy_columns(spec)
        }
        mates = {
            OF_MATES + name: values.unsqueeze(1).repeat(1, COUNTED_MATES, *([1] * (values.dim() - 1)))
            for name, values in own.items()
            if name in {*observations, CONTINUOUS_ACTION, DISCRETE_ACTION}
        }
        return {**own, **mates, PRESENT: torch.ones(rows, COUNTED_MATES)}

    def loss(columns: Columns) -> Tensor:
        recorded = columns[LOG_PROB]
        rows = recorded.shape[0]
        seen = [columns[name] for name in observations]
        mates = mates_of(columns, observations)
        output, values = network(seen, columns.get(ACTION_MASK), mates, _sequence(network, rows))
        returns = torch.zeros_like(values[:, : values.shape[1] // 2])
        continuous, discrete = columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION)
        advantage = recorded.new_zeros(rows, 1)
        batch = Batch(continuous, discrete, recorded, advantage, returns, old_baselines=returns)
        coefficients = Coefficients(epsilon=0.2, beta=1.0, ratio="per_action")
        return poca_loss(output, values, batch, coefficients).total

    return kept_bytes(network, columns, loss)


def _sequence(network: GroupActorCritic, rows: int) -> Sequences | None:
    """Returns one sequence of ``rows`` rows; None for a network without memory."""
    if not network.memory_size:
        return None
    places = torch.ones(rows, dtype=torch.int64)  # on the CPU, where LSTMs read them
    memory = torch.zeros(1, network.memory_size, device="meta")
    return Sequences(places, memory, torch.cat((memory, memory), dim=1))


def poca_loss(output: PolicyOutput, values: Tensor, batch: Batch, coefficients: Coefficients) -> LossTerms:
    """Computes policy + value * ((V - R)^2 + 0.5 * baseline) - beta * entropy (arXiv:2111.05992, equations 7 and 8).

    The policy term is PPO's clipped surrogate. The baseline may move epsilon away from its value before the update:
    baseline = max((b - R)^2, (b_old + clip(b - b_old, -epsilon, epsilon) - R)^2).

    Args:
        output: Output of the policy network for the minibatch.
        values: Values of the critic, then its baselines, ``[B, 2 * K]``.
        batch: The minibatch, with `old_baselines`.
        coefficients: Weights of the loss terms.
    """
    value, baseline = values.chunk(2, dim=1)
    policy_loss = clipped_surrogate(output, batch, coefficients)
    error = (baseline - batch.returns).square()
    if batch.old_baselines is not None:
        moved = (baseline - batch.old_baselines).clamp(-coefficients.epsilon, coefficients.epsilon)
        error = torch.maximum(error, (batch.old_baselines + moved - batch.returns).square())
    baseline_loss = error.mean()
    terms = actor_critic_loss(policy_loss, output, value, batch, coefficients, baseline_loss=baseline_loss)
    return terms._replace(total=terms.total + coefficients.value * BASELINE * baseline_loss)


def mates_of(columns: Mapping[str, Tensor], observations: tuple[str, ...]) -> Mates | None:
    """Returns the mates in a minibatch; None if all agents of the update are alone.

    Args:
        columns: Columns of the minibatch by name.
        observations: Names of the observation columns.
    """
    if PRESENT not in columns:
        return None
    actions = Taken(columns.get(OF_MATES + CONTINUOUS_ACTION), columns.get(OF_MATES + DISCRETE_ACTION))
    return Mates([columns[OF_MATES + name] for name in observations], actions, columns[PRESENT])


def _members(plan: UpdateRows) -> Members:
    if plan.members is None:
        raise ValueError("the update buffer does not keep groups together")
    return plan.members
