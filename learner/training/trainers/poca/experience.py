"""Turns ring rows into the experience of POCA: values, counterfactual baselines, and the mates of each step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from learner.training.buffers.batches import Source
from learner.training.buffers.buffer import Members, Plan
from learner.training.buffers.columns import CONTINUOUS_ACTION, DISCRETE_ACTION
from learner.training.networks.group import GroupActorCritic, Mates, Taken
from learner.training.trainers.actor_critic.experience import Estimates, ExperienceMaker, Recorded
from learner.training.trainers.actor_critic.recurrence import CarriedMemories

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

    def recorded(self, plan: Plan, storage: Mapping[str, Tensor], version: int) -> Recorded:
        """Returns views of the ring's columns, also for the mates of each step; see `ExperienceMaker.recorded`."""
        found = super().recorded(plan, storage, version)
        members = _members(plan)
        mates = members.rows.index_select(0, plan.steps)[:, 1:]
        if not mates.shape[1]:
            return found
        rows = plan.rows[mates]
        # Mates act at steps, never at final rows.
        steps = (plan.is_step.cumsum(0) - 1).long()[mates]
        sources: dict[str, Source] = {
            OF_MATES + name: Source(storage[name], rows)
            for name in (*self.observations, CONTINUOUS_ACTION)
            if name in storage
        }
        if DISCRETE_ACTION in found.sources:
            sources[OF_MATES + DISCRETE_ACTION] = Source(found.sources[DISCRETE_ACTION].values, steps)
        sources[PRESENT] = Source(members.present.index_select(0, plan.steps)[:, 1:])
        return found._replace(sources={**found.sources, **sources})

    def estimate(self, plan: Plan, storage: Mapping[str, Tensor], recorded: Recorded) -> Estimates:
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


def _members(plan: Plan) -> Members:
    if plan.members is None:
        raise ValueError("the update buffer does not keep groups together")
    return plan.members
