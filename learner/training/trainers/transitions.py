"""Reads transitions from ring rows: the row of a step and the next row, which has the observation after it."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.training.buffers.batches import RowSource
from learner.training.buffers.columns import CONTINUOUS_ACTION, DISCRETE_ACTION, REWARD, TERMINATED, observation_column
from learner.training.networks.distributions import branch_offsets
from learner.training.rewards.transitions import Transitions

_NEXT = "next/"


class TransitionReader:
    """Reads transitions from columns of a ring.

    Args:
        spec: Observations and actions of the behavior.
        device: Device of the ring.
        needs_observations: False leaves out everything except rewards and ends.
    """

    def __init__(self, spec: BehaviorSpec, device: torch.device, *, needs_observations: bool) -> None:
        self.needs_observations = needs_observations
        self._observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._has_branches = len(spec.action.discrete_branches) > 0
        self._offsets = branch_offsets(spec.action.discrete_branches, device)
        self._has_axes = spec.action.continuous_size > 0

    def at(self, storage: Mapping[str, Tensor], rows: Tensor, next_rows: Tensor, terminated: Tensor) -> Transitions:
        """Gathers B transitions.

        Args:
            storage: Columns of the ring.
            rows: ``[B]`` int64, rows of the steps.
            next_rows: ``[B]`` int64, rows of the observations after them.
            terminated: ``[B]`` float64.
        """
        reward = storage[REWARD].index_select(0, rows)
        if not self.needs_observations:
            return Transitions(reward, terminated)
        return Transitions(
            reward,
            terminated,
            [storage[name].index_select(0, rows) for name in self._observations],
            [storage[name].index_select(0, next_rows) for name in self._observations],
            storage[CONTINUOUS_ACTION].index_select(0, rows) if self._has_axes else None,
            storage[DISCRETE_ACTION].index_select(0, rows).long() if self._has_branches else None,
        )

    def sources(
        self, storage: Mapping[str, Tensor], rows: Tensor, next_rows: Tensor, terminated: Tensor
    ) -> dict[str, RowSource]:
        """Returns the further columns that `of` needs in addition to observations and actions; see `at`."""
        following = {_NEXT + name: RowSource(storage[name], next_rows) for name in self._observations}
        return {REWARD: RowSource(storage[REWARD], rows), TERMINATED: RowSource(terminated), **following}

    def of(self, columns: Mapping[str, Tensor]) -> Transitions:
        """Reads the transitions of a minibatch whose discrete actions include the offsets of their branches."""
        discrete = columns.get(DISCRETE_ACTION)
        if discrete is not None:
            discrete = discrete - self._offsets
        return Transitions(
            columns[REWARD],
            columns[TERMINATED],
            [columns[name] for name in self._observations],
            [columns[_NEXT + name] for name in self._observations],
            columns.get(CONTINUOUS_ACTION),
            discrete,
        )
