"""From drawn places of replay memory to minibatches, rewards computed anew."""

from __future__ import annotations

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.device.columns import ACTION_MASK, MEMORY, TERMINATED, observation_column
from learner.device.replay import Places, ReplayMemory
from learner.device.replay_sequences import DrawnSequences
from learner.networks.distributions import branch_offsets
from learner.rewards.signal_set import SignalSet
from learner.rewards.transitions import Transitions
from learner.trainers.sac.reading import Batch, Remembered
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
        self._observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._branches = tuple(spec.action.discrete_branches)
        self._offsets = branch_offsets(self._branches, device)

    def draw(self, count: int) -> tuple[Batch, Transitions]:
        """Draws steps, or sequences that would make so many if all were whole (at least one).

        What reward signals see of the steps comes with the batch.
        """
        sequences = self._memory.sequences
        if sequences is None:
            return self._read(self._memory.draw(count), None)
        drawn = self._memory.draw_sequences(max(1, count // sequences.stride))
        return self._read(Places(drawn.step_rows, drawn.next_rows), drawn)

    def _read(self, places: Places, drawn: DrawnSequences | None) -> tuple[Batch, Transitions]:
        rows, next_rows = places
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
            None if drawn is None else self._remembered(drawn),
        )
        return batch, transitions

    def _remembered(self, drawn: DrawnSequences) -> Remembered:
        storage = self._memory.storage
        return Remembered(
            [storage[name].index_select(0, drawn.rows) for name in self._observations],
            drawn.now,
            drawn.batch_sizes,
            storage[MEMORY].index_select(0, drawn.first_rows),
        )

    def rewards(self, rows: Tensor) -> Tensor:
        """Computes the present rewards of steps at places ``[B]`` int64: ``[B, K]`` float64."""
        return self._signals.evaluate(self.transitions(rows, rows + 1))

    def transitions(self, rows: Tensor, next_rows: Tensor) -> Transitions:
        """Reads steps at places ``[B]`` int64 and what was seen after them."""
        storage = self._memory.storage
        return self._reader.at(storage, rows, next_rows, storage[TERMINATED].index_select(0, rows).double())
