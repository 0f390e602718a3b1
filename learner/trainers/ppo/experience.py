"""From ring rows to what the minibatches are drawn from: values, advantages, returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.device.batches import Source
from learner.device.buffer import Plan
from learner.device.columns import (
    ACTION_MASK,
    CONTINUOUS_ACTION,
    DISCRETE_ACTION,
    LOG_PROB,
    VERSION,
    observation_column,
)
from learner.networks.distributions import branch_offsets
from learner.networks.value import ActorCritic
from learner.rewards.signals import RewardSignal
from learner.trainers.ppo.loss import Ratio
from learner.trainers.reduce import Reduce
from learner.trainers.returns import generalized_advantages

ADVANTAGE = "advantage"
RETURNS = "returns"

_ROWS_AT_ONCE = 4096
"""Rows whose values are computed in one call, so that pictures do not need memory for a whole buffer."""
_NUMBERS_AT_ONCE = 2**26
"""Numbers that these rows may take in attention and generated weights: 256 MiB."""


class Recorded(NamedTuple):
    """N steps as actors recorded them.

    Attributes:
        sources: columns by name: observations, actions, masks (only where there were any), log-probabilities.
        lag: ``[N]`` int64, versions between acting and this update.
    """

    sources: Mapping[str, Source]
    lag: Tensor


@dataclass(frozen=True, slots=True)
class Experience:
    """N steps, ready to be drawn from.

    Attributes:
        sources: those of `Recorded`, and advantages ``[N, 1]``, returns ``[N, K]``.
        steps: N.
        lag: ``[N]`` int64, versions between acting and this update.
        rewards: ``[K]`` sum of each signal's rewards.
        values: ``[K]`` mean value of each signal.
        explained: scalar, share of the variance of the returns that the values explain.
    """

    sources: Mapping[str, Source]
    steps: int
    lag: Tensor
    rewards: Tensor
    values: Tensor
    explained: Tensor


class ExperienceMaker:
    """Evaluates the taken segments of an update buffer.

    Args:
        spec: what the behavior sees and does.
        network: whose critic values the observations.
        signals: the reward signals, in the order of the value heads.
        lambd: the trace of the advantages.
        ratio: in which form log-probabilities are compared.
        reduce: combines the moments of the advantages over several learners.
        device: where everything is.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        network: ActorCritic,
        signals: Sequence[RewardSignal],
        *,
        lambd: float,
        ratio: Ratio,
        reduce: Reduce,
        device: torch.device,
    ) -> None:
        self.observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._action = spec.action
        self._network = network
        self._rows_at_once = min(_ROWS_AT_ONCE, max(1, _NUMBERS_AT_ONCE // max(1, network.row_numbers)))
        self._signals = tuple(signals)
        self._lambd = lambd
        self._ratio = ratio
        self._reduce = reduce
        self._gamma = torch.tensor([signal.gamma for signal in signals], dtype=torch.float64, device=device)
        self._ignores_ends = torch.tensor([signal.ignores_ends for signal in signals], device=device)
        self._offsets = branch_offsets(spec.action.discrete_branches, device)

    @torch.no_grad()
    def make(self, plan: Plan, storage: Mapping[str, Tensor], recorded: Recorded) -> Experience:
        """Computes what an update needs, under the network as it is, without a wait for the device."""
        values = self._values(plan, storage).double()
        rewards = self._rewards(plan, storage)
        bootstraps = plan.bootstraps.unsqueeze(1)
        advantages = generalized_advantages(
            rewards,
            values,
            is_step=plan.is_step,
            bootstraps=torch.where(self._ignores_ends, plan.is_step.unsqueeze(1), bootstraps),
            continues=plan.continues,
            gamma=self._gamma,
            lambd=self._lambd,
            longest=plan.longest,
        ).index_select(0, plan.steps)
        values = values.index_select(0, plan.steps)
        returns = advantages + values
        return Experience(
            sources={
                **recorded.sources,
                ADVANTAGE: Source(self._normalized(advantages.mean(1, keepdim=True)).float()),
                RETURNS: Source(returns.float()),
            },
            steps=plan.step_count,
            lag=recorded.lag,
            rewards=rewards.index_select(0, plan.steps).sum(0),
            values=values.mean(0),
            explained=1.0 - advantages.var(0, correction=0).sum() / returns.var(0, correction=0).sum(),
        )

    def _values(self, plan: Plan, storage: Mapping[str, Tensor]) -> Tensor:
        """Computes ``[R, K]`` float32."""
        parts = [
            self._network.values([storage[name].index_select(0, rows) for name in self.observations])
            for rows in torch.split(plan.rows, self._rows_at_once)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _rewards(self, plan: Plan, storage: Mapping[str, Tensor]) -> Tensor:
        """Computes ``[R, K]`` float64."""
        rows = {name: storage[name].index_select(0, plan.rows) for name in ("reward",)}
        return torch.stack([signal.evaluate(rows) for signal in self._signals], dim=1)

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
        return Recorded(sources, version - storage[VERSION].index_select(0, places))

    def _normalized(self, advantages: Tensor) -> Tensor:
        """Subtracts the mean and divides by the standard deviation, over the steps of all learners."""
        ones = torch.ones_like(advantages)
        count, total = self._reduce.sums(torch.stack((ones.sum(), advantages.sum())))
        centered = advantages - total / count
        squares = self._reduce.sums(centered.square().sum())
        normalized: Tensor = centered / ((squares / count).sqrt() + 1e-10)
        return normalized
