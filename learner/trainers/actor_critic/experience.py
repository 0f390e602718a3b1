"""From ring rows to what the minibatches are drawn from: values, advantages, returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.buffers.batches import Source
from learner.buffers.buffer import Plan
from learner.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    VERSION,
    observation_column,
)
from learner.buffers.sequences import Portion, SequenceTable, all_steps
from learner.networks.distributions import branch_offsets
from learner.networks.value import ActorCritic
from learner.optimizers.reduce import Reduce
from learner.rewards.signals import SignalSet
from learner.trainers.actor_critic.loss import Ratio, log_probability
from learner.trainers.actor_critic.recurrence import Recurrence
from learner.trainers.actor_critic.targets import TargetRule, Valued
from learner.trainers.transitions import TransitionReader

ADVANTAGE = "advantage"
RETURNS = "returns"
OLD_VALUES = "old_values"

_ROWS_AT_ONCE = 4096
"""Rows whose values are computed in one call, so that pictures do not need memory for a whole buffer."""
_BYTES_AT_ONCE = 2**28
"""What these rows may take in the networks."""


class Recorded(NamedTuple):
    """N steps as actors recorded them.

    Attributes:
        sources: columns by name: observations, actions, masks (only where there were any), log-probabilities.
        lag: ``[N]`` int64, versions between acting and this update.
        table: how they are sequences; None without memory.
    """

    sources: Mapping[str, Source]
    lag: Tensor
    table: SequenceTable | None = None


@dataclass(frozen=True, slots=True)
class Experience:
    """N steps, ready to be drawn from.

    Attributes:
        sources: those of `Recorded`, and advantages ``[N, 1]``, returns ``[N, K]``, values ``[N, K]`` if they are kept.
        steps: N.
        lag: ``[N]`` int64, versions between acting and this update.
        rewards: ``[K]`` sum of each signal's rewards over the steps.
        values: ``[K]`` mean value of each signal.
        explained: scalar, share of the variance of the returns that the values explain.
        table: how they are sequences, and what is remembered before each; None without memory.
    """

    sources: Mapping[str, Source]
    steps: int
    lag: Tensor
    rewards: Tensor
    values: Tensor
    explained: Tensor
    table: SequenceTable | None = None


class ExperienceMaker:
    """Evaluates the taken segments of an update buffer.

    Args:
        spec: what the behavior sees and does.
        network: whose critic values the observations.
        signals: the reward signals, in the order of the value heads.
        targets: makes advantages and returns.
        ratio: in which form log-probabilities are compared.
        row_bytes: what one row takes in a forward pass of the network.
        normalizes: whether advantages are brought to mean 0 and deviation 1.
        keeps_values: whether the loss sees the values from before the update.
        reduce: combines the moments of the advantages over several learners.
        device: where everything is.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        network: ActorCritic,
        signals: SignalSet,
        *,
        targets: TargetRule,
        ratio: Ratio,
        reduce: Reduce,
        device: torch.device,
        row_bytes: int,
        normalizes: bool = True,
        keeps_values: bool = False,
        memory_stride: int = 0,
    ) -> None:
        self.observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._action = spec.action
        self._network = network
        self._rows_at_once = min(_ROWS_AT_ONCE, max(1, _BYTES_AT_ONCE // max(1, row_bytes)))
        self._signals = signals
        self._targets = targets
        self._ratio = ratio
        self._reduce = reduce
        self._normalizes = normalizes
        self._keeps_values = keeps_values
        self.transitions = TransitionReader(spec, device, needs_observations=signals.needs_observations)
        self._offsets = branch_offsets(spec.action.discrete_branches, device)
        self.recurrence = (
            Recurrence(network, memory_stride, self.observations, self._rows_at_once) if network.memory_size else None
        )

    @torch.no_grad()
    def make(self, plan: Plan, storage: Mapping[str, Tensor], recorded: Recorded) -> Experience:
        """Computes what an update needs, under the network as it is, without a wait for the device."""
        table = recorded.table
        if self.recurrence is not None and table is not None:
            found, table = self.recurrence.evaluate(plan, storage, table)
        else:
            found = self._values(plan, storage)
        values = found.double()
        terminated = 1.0 - plan.bootstraps.index_select(0, plan.steps)
        rewards = self._rewards(plan, storage, terminated)
        bootstraps = torch.where(self._signals.ignores_ends, plan.is_step.unsqueeze(1), plan.bootstraps.unsqueeze(1))
        valued = Valued(
            rewards, values, bootstraps, self._signals.gamma, lambda: self._log_ratio(plan, storage, recorded)
        )
        targets = self._targets(plan, valued)
        advantages, returns, values = (
            column.index_select(0, plan.steps) for column in (targets.advantages, targets.returns, values)
        )
        mean = advantages.mean(1, keepdim=True)
        sources = {
            **recorded.sources,
            ADVANTAGE: Source((self._normalized(mean) if self._normalizes else mean).float()),
            RETURNS: Source(returns.float()),
        }
        if self._keeps_values:
            sources[OLD_VALUES] = Source(values.float())
        if self._signals.learns:
            sources |= self.transitions.sources(storage, plan.step_rows, _next_rows(plan), terminated)
        return Experience(
            sources=sources,
            steps=plan.step_count,
            lag=recorded.lag,
            rewards=rewards.sum(0),
            values=values.mean(0),
            explained=1.0 - (returns - values).var(0, correction=0).sum() / returns.var(0, correction=0).sum(),
            table=table,
        )

    def _values(self, plan: Plan, storage: Mapping[str, Tensor]) -> Tensor:
        """Computes ``[R, K]`` float32."""
        parts = [
            self._network.values([storage[name].index_select(0, rows) for name in self.observations])
            for rows in torch.split(plan.rows, self._rows_at_once)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rewards(self, plan: Plan, storage: Mapping[str, Tensor], terminated: Tensor) -> Tensor:
        """Computes ``[R, K]`` float64; 0 in final rows."""
        following = _next_rows(plan)
        # Rewards alone are read at once; observations in pieces, for pictures do not fit a whole buffer's networks.
        at_once = self._rows_at_once if self.transitions.needs_observations else plan.step_count
        parts = [
            self._signals.evaluate(self.transitions.at(storage, *pieces))
            for pieces in zip(
                torch.split(plan.step_rows, at_once),
                torch.split(following, at_once),
                torch.split(terminated, at_once),
                strict=True,
            )
        ]
        rewards = torch.zeros((plan.rows.shape[0], len(self._signals)), dtype=torch.float64, device=plan.rows.device)
        return rewards.index_copy_(0, plan.steps, torch.cat(parts))

    def _log_ratio(self, plan: Plan, storage: Mapping[str, Tensor], recorded: Recorded) -> Tensor:
        """Computes `Valued.log_ratio`."""
        result = torch.zeros_like(plan.is_step)
        for portion in all_steps(plan.step_count, recorded.table, most=self._rows_at_once, device=plan.rows.device):
            rows = plan.step_rows.index_select(0, portion.steps)
            log_ratio = self._own_log_prob(recorded.sources, portion) - storage[LOG_PROB].index_select(
                0, rows
            ).double().sum(1)
            result.index_copy_(0, plan.steps.index_select(0, portion.steps), log_ratio)
        return result

    def _own_log_prob(self, sources: Mapping[str, Source], portion: Portion) -> Tensor:
        """Computes the present log-probability of the whole action of chosen steps, ``[B]`` float64."""
        columns = {name: source.at(portion.steps) for name, source in sources.items()}
        observations = [columns[name] for name in self.observations]
        output = self._network.policy.unroll(observations, columns.get(ACTION_MASK), portion.sequences)
        own = log_probability(output, columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), "per_action")
        return own.double().sum(1)

    def recorded(self, plan: Plan, storage: Mapping[str, Tensor], version: int) -> Recorded:
        """Points at what lies in the ring, and copies what needs a change of form.

        Args:
            plan: of the update.
            storage: the ring.
            version: the present one.
        """
        places = plan.step_rows
        sources = {name: Source(storage[name], places) for name in self.observations}
        if self._action.continuous_size:
            sources[CONTINUOUS_ACTION] = Source(storage[CONTINUOUS_ACTION], places)
        if self._action.discrete_branches:
            sources[DISCRETE_ACTION] = Source(storage[DISCRETE_ACTION].index_select(0, places) + self._offsets)
            if plan.masked:
                sources[ACTION_MASK] = Source(storage[ACTION_MASK], places)
        log_prob = storage[LOG_PROB].index_select(0, places)
        if self._ratio == "joint":
            log_prob = log_prob.sum(1, keepdim=True)
        sources[LOG_PROB] = Source(log_prob)
        table = None if self.recurrence is None else self.recurrence.table(plan, storage)
        return Recorded(sources, version - storage[VERSION].index_select(0, places), table)

    def _normalized(self, advantages: Tensor) -> Tensor:
        """Subtracts the mean and divides by the standard deviation, over the steps of all learners."""
        count, total = self._reduce.sums(torch.stack((torch.ones_like(advantages).sum(), advantages.sum())))
        centered = advantages - total / count
        squares = self._reduce.sums(centered.square().sum())
        normalized: Tensor = centered / ((squares / count).sqrt() + 1e-10)
        return normalized


def _next_rows(plan: Plan) -> Tensor:
    """Returns the places of what was seen after each step, ``[N]`` int64."""
    return plan.rows.index_select(0, plan.steps + 1)
