"""Turns ring rows into the experience that minibatches are drawn from: values, advantages, returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.training.buffers.batches import RowSource, Share
from learner.training.buffers.buffer import UpdateRows
from learner.training.buffers.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    VERSION,
    observation_column,
)
from learner.training.buffers.sequences import Portion, SequenceTable, all_steps
from learner.training.networks.distributions import branch_offsets
from learner.training.networks.value import ActorCritic, PolicyAndCritic
from learner.training.optimizers.reduce import Reduce
from learner.training.rewards.signals import SignalSet
from learner.training.trainers.actor_critic.loss import Ratio, log_probability
from learner.training.trainers.actor_critic.recurrence import Recurrence, sequence_table
from learner.training.trainers.actor_critic.targets import TargetRule, Valued
from learner.training.trainers.actor_critic.value_scale import ValueScale
from learner.training.trainers.transitions import TransitionReader

ADVANTAGE = "advantage"
RETURNS = "returns"
OLD_VALUES = "old_values"
OLD_BASELINES = "old_baselines"

_ROWS_AT_ONCE = 4096
"""Largest number of rows valued in one call: the images of a whole buffer would need too much memory."""
_BYTES_AT_ONCE = 2**28
"""Most bytes that these rows may take in the networks."""


class Recorded(NamedTuple):
    """N steps as actors recorded them.

    Attributes:
        sources: Columns by name: observations, actions, masks (if any), log-probabilities.
        lag: ``[N]`` int64, versions between acting and this update.
        table: Layout of the sequences; None without memory.
    """

    sources: Mapping[str, RowSource]
    lag: Tensor
    table: SequenceTable | None = None


class Estimates(NamedTuple):
    """What a critic says about R rows.

    Attributes:
        values: Outputs of the value heads, ``[R, K]`` float32.
        table: Layout of the sequences with the critic's memories; None without memory.
        baselines: Outputs for the baselines, ``[R, K]`` float32; None for a critic without them.
    """

    values: Tensor
    table: SequenceTable | None
    baselines: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Experience:
    """N steps, ready to be drawn.

    Attributes:
        sources: The columns of `Recorded`, advantages ``[N, 1]``, returns ``[N, K]``, and values and baselines
            ``[N, K]`` if they are kept; all but the advantages in the scale of the value heads.
        steps: Number of steps, N.
        lag: ``[N]`` int64, versions between acting and this update.
        rewards: ``[K]`` sum of the rewards of each signal over the steps.
        values: ``[K]`` mean value of each signal.
        explained: Scalar, share of the variance of the returns that the values explain.
        share: What this learner has of all steps, or of all sequences with memory.
        table: Layout of the sequences and the memory before each; None without memory.
        baselines: ``[K]`` mean baseline of each signal; None without baselines.
    """

    sources: Mapping[str, RowSource]
    steps: int
    lag: Tensor
    rewards: Tensor
    values: Tensor
    explained: Tensor
    share: Share
    table: SequenceTable | None = None
    baselines: Tensor | None = None


class ExperienceMaker:
    """Evaluates the taken segments of an update buffer.

    Args:
        spec: Observations and actions of the behavior.
        network: Network whose critic values the observations.
        signals: The reward signals, in the order of the value heads.
        scale: The scale of the value heads.
        targets: Computes advantages and returns.
        ratio: Form in which log-probabilities are compared.
        row_bytes: Bytes of one row in a forward pass of the network.
        normalizes: Whether advantages are normalized to mean 0 and standard deviation 1; otherwise they are divided by
            the scale of the values.
        keeps_values: Whether the loss uses the values from before the update.
        reduce: Combines the moments of the advantages over several learners.
        device: Device of all tensors.
        memory_stride: Rows between two records of memory; 0 for a policy without memory.

    Attributes:
        targets: As given; may be replaced between two updates.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        network: PolicyAndCritic,
        signals: SignalSet,
        scale: ValueScale,
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
        self._scale = scale
        self.targets = targets
        self._ratio = ratio
        self._reduce = reduce
        self._normalizes = normalizes
        self._keeps_values = keeps_values
        self.transitions = TransitionReader(spec, device, needs_observations=signals.needs_observations)
        self._offsets = branch_offsets(spec.action.discrete_branches, device)
        self._stride = memory_stride
        self.recurrence = (
            Recurrence(network, self.observations, self._rows_at_once)
            if network.memory_size and isinstance(network, ActorCritic)
            else None
        )

    def forget(self) -> None:
        """Forgets the critic's memories of running episodes."""
        if self.recurrence is not None:
            self.recurrence.forget()

    def estimate(self, plan: UpdateRows, storage: Mapping[str, Tensor], recorded: Recorded) -> Estimates:
        """Evaluates all rows with the critic; a critic of another kind has its own."""
        if self.recurrence is not None and recorded.table is not None:
            return Estimates(*self.recurrence.evaluate(plan, storage, recorded.table))
        return Estimates(self._values(plan, storage), None)

    @torch.no_grad()
    def make(self, plan: UpdateRows, storage: Mapping[str, Tensor], recorded: Recorded) -> Experience:
        """Computes the experience of an update under the current network, without waiting for the device.

        The scale of the value heads is then updated with the targets; values and targets in the loss have the new scale.
        """
        found = self.estimate(plan, storage, recorded)
        values = self._after_ends(plan, self._scale.values(found.values))
        baselines = None if found.baselines is None else self._scale.values(found.baselines)
        terminated = plan.terminated
        rewards = self._rewards(plan, storage, terminated)
        bootstraps = torch.where(self._signals.ignores_ends, plan.is_step.unsqueeze(1), plan.bootstraps.unsqueeze(1))
        valued = Valued(
            rewards,
            values,
            bootstraps,
            self._signals.gamma,
            lambda: self._log_ratio(plan, storage, recorded),
            baselines,
        )
        targets = self.targets(plan, valued)
        advantages, returns, values = (
            column.index_select(0, plan.steps) for column in (targets.advantages, targets.returns, values)
        )
        self._scale.merge(returns)
        mean = advantages.mean(1, keepdim=True)
        advantage = self._normalized(mean) if self._normalizes else mean / self._scale.of_advantages()
        sources = {
            **recorded.sources,
            ADVANTAGE: RowSource(advantage.float()),
            RETURNS: RowSource(self._scale.normalized(returns).float()),
        }
        if self._keeps_values:
            sources[OLD_VALUES] = RowSource(self._scale.normalized(values).float())
        if baselines is not None:
            baselines = baselines.index_select(0, plan.steps)
            sources[OLD_BASELINES] = RowSource(self._scale.normalized(baselines).float())
        if self._signals.learns:
            sources |= self.transitions.sources(storage, plan.step_rows, _next_rows(plan), terminated)
        return Experience(
            sources=sources,
            steps=plan.step_count,
            lag=recorded.lag,
            rewards=rewards.sum(0),
            values=values.mean(0),
            share=_share(plan, self._stride if found.table is not None else 0),
            explained=1.0 - (returns - values).var(0, correction=0).sum() / returns.var(0, correction=0).sum(),
            table=found.table,
            baselines=None if baselines is None else baselines.mean(0),
        )

    def _after_ends(self, plan: UpdateRows, values: Tensor) -> Tensor:
        """Replaces the values ``[R, K]`` of terminal observations by the mean value of observations that begin episodes.

        Signals that ignore ends bootstrap from this mean (Burda et al. 2018, arXiv:1810.12894, section 2.3: the next
        state is the one after the reset). The critic is never trained on a terminal observation, so its value there is
        arbitrary.
        """
        found = torch.cat((torch.mv(values.T, plan.begins), plan.begins.sum().reshape(1)))
        if self._reduce.ranks > 1:
            found = self._reduce.sums(found)
        is_terminal = (plan.is_step + torch.cat((plan.is_step[:1], plan.bootstraps[:-1]))) == 0.0
        return torch.where(is_terminal.unsqueeze(1), found[:-1] / found[-1], values)

    def _values(self, plan: UpdateRows, storage: Mapping[str, Tensor]) -> Tensor:
        """Computes outputs of the value heads, ``[R, K]`` float32."""
        network = self._network
        if not isinstance(network, ActorCritic):
            raise TypeError(f"{type(network).__name__} is not an ActorCritic")
        parts = [
            network.values([storage[name].index_select(0, rows) for name in self.observations])
            for rows in torch.split(plan.rows, self._rows_at_once)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rewards(self, plan: UpdateRows, storage: Mapping[str, Tensor], terminated: Tensor) -> Tensor:
        """Computes rewards, ``[R, K]`` float64; 0 in final rows."""
        following = _next_rows(plan)
        # Rewards are read at once and observations in pieces, because images of a whole buffer do not fit the networks.
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

    def _log_ratio(self, plan: UpdateRows, storage: Mapping[str, Tensor], recorded: Recorded) -> Tensor:
        """Computes `Valued.log_ratio`."""
        result = torch.zeros_like(plan.is_step)
        for portion in all_steps(plan.step_count, recorded.table, most=self._rows_at_once, device=plan.rows.device):
            rows = plan.step_rows.index_select(0, portion.steps)
            log_ratio = self._own_log_prob(recorded.sources, portion) - storage[LOG_PROB].index_select(
                0, rows
            ).double().sum(1)
            result.index_copy_(0, plan.steps.index_select(0, portion.steps), log_ratio)
        return result

    def _own_log_prob(self, sources: Mapping[str, RowSource], portion: Portion) -> Tensor:
        """Computes the current log-probability of the whole actions of chosen steps, ``[B]`` float64."""
        columns = {name: source.at(portion.steps) for name, source in sources.items()}
        observations = [columns[name] for name in self.observations]
        output = self._network.policy.unroll(observations, columns.get(ACTION_MASK), portion.sequences)
        own = log_probability(output, columns.get(CONTINUOUS_ACTION), columns.get(DISCRETE_ACTION), "per_action")
        return own.double().sum(1)

    def recorded(self, plan: UpdateRows, storage: Mapping[str, Tensor], version: int) -> Recorded:
        """Returns views of the ring's columns, and copies of columns that need another form.

        Args:
            plan: Rows of the update.
            storage: Columns of the ring.
            version: The current policy version.
        """
        places = plan.step_rows
        sources = {name: RowSource(storage[name], places) for name in self.observations}
        if self._action.continuous_size:
            sources[CONTINUOUS_ACTION] = RowSource(storage[CONTINUOUS_ACTION], places)
        if self._action.discrete_branches:
            sources[DISCRETE_ACTION] = RowSource(storage[DISCRETE_ACTION].index_select(0, places) + self._offsets)
            if plan.masked:
                sources[ACTION_MASK] = RowSource(storage[ACTION_MASK], places)
        log_prob = storage[LOG_PROB].index_select(0, places)
        if self._ratio == "joint":
            log_prob = log_prob.sum(1, keepdim=True)
        sources[LOG_PROB] = RowSource(log_prob)
        table = sequence_table(plan, storage, self._stride) if self._network.memory_size else None
        return Recorded(sources, version - storage[VERSION].index_select(0, places), table)

    def _normalized(self, advantages: Tensor) -> Tensor:
        """Subtracts the mean and divides by the standard deviation, over the steps of all learners."""
        count, total = self._reduce.sums(torch.stack((torch.ones_like(advantages).sum(), advantages.sum())))
        centered = advantages - total / count
        squares = self._reduce.sums(centered.square().sum())
        normalized: Tensor = centered / ((squares / count).sqrt() + 1e-10)
        return normalized


def _share(plan: UpdateRows, stride: int) -> Share:
    """Returns what this learner has of all steps, or of all sequences of ``stride`` steps with memory."""
    if not stride:
        return Share(0 if plan.is_stand_in else plan.step_count, plan.all_steps)
    own = sum(-(-segment.steps // stride) for segment in plan.segments)
    return Share(0 if plan.is_stand_in else own, int((-(-plan.lengths // stride)).sum()))


def _next_rows(plan: UpdateRows) -> Tensor:
    """Returns the rows of the observations after each step, ``[N]`` int64."""
    return plan.rows.index_select(0, plan.steps + 1)
