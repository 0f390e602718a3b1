"""From drawn places of replay memory to minibatches, rewards computed anew."""

from __future__ import annotations

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.device.columns import ACTION_MASK, TERMINATED
from learner.device.replay import ReplayMemory
from learner.networks.distributions import branch_offsets
from learner.rewards.signal_set import SignalSet
from learner.rewards.transitions import Transitions
from learner.trainers.sac.learner import Batch
from learner.trainers.transitions import TransitionReader


class BatchMaker:
    """Reads minibatches of a replay memory.

    Args:
        spec: what the behavior sees and does.
        memory: what is drawn from.
        signals: what each step is worth.
        device: where everything is.
    """

    def __init__(self, spec: BehaviorSpec, memory: ReplayMemory, signals: SignalSet, device: torch.device) -> None:
        self._memory = memory
        self._signals = signals
        self._reader = TransitionReader(spec, needs_observations=True)
        self._branches = tuple(spec.action.discrete_branches)
        self._offsets = branch_offsets(self._branches, device)

    def draw(self, count: int) -> tuple[Batch, Transitions]:
        """Draws steps; what reward signals see of them comes with the batch."""
        rows, next_rows = self._memory.draw(count)
        transitions = self.transitions(rows, next_rows)
        storage = self._memory.storage
        masks = storage[ACTION_MASK] if self._branches and self._memory.masked else None
        batch = Batch(
            transitions.observations,
            transitions.next_observations,
            None if transitions.continuous is None else torch.tanh(transitions.continuous),
            None if transitions.discrete is None else transitions.discrete + self._offsets,
            None if masks is None else masks.index_select(0, rows),
            None if masks is None else masks.index_select(0, next_rows),
            self._signals.evaluate(transitions).float(),
            transitions.terminated.float(),
        )
        return batch, transitions

    def rewards(self, rows: Tensor) -> Tensor:
        """Computes the present rewards of steps at places ``[B]`` int64: ``[B, K]`` float64."""
        return self._signals.evaluate(self.transitions(rows, rows + 1))

    def transitions(self, rows: Tensor, next_rows: Tensor) -> Transitions:
        """Reads steps at places ``[B]`` int64 and what was seen after them."""
        storage = self._memory.storage
        return self._reader.at(storage, rows, next_rows, storage[TERMINATED].index_select(0, rows).double())
