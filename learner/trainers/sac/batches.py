"""From drawn places of replay memory to minibatches or parts of such, rewards computed anew."""

from __future__ import annotations

from typing import NamedTuple

import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.buffers.columns import ACTION_MASK, MEMORY, TERMINATED, observation_column
from learner.buffers.replay import Places, ReplayMemory
from learner.buffers.replay_sequences import DrawnSequences
from learner.networks.distributions import branch_offsets
from learner.rewards.signal_set import SignalSet
from learner.rewards.transitions import Transitions
from learner.trainers.sac.reading import Batch, Remembered
from learner.trainers.transitions import TransitionReader


class Part(NamedTuple):
    """Where a minibatch is, or a part of one that is computed by itself.

    Attributes:
        places: of its steps.
        sequences: how they are sequences; None without memory.
    """

    places: Places
    sequences: DrawnSequences | None

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return self.places.rows.shape[0]


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

    def draw(self, count: int, parts: int = 1) -> list[Part]:
        """Draws steps, or sequences that would make so many if all were whole (at least one for each part).

        Args:
            count: steps of all parts together.
            parts: equal ones.
        """
        sequences, steps = self._memory.sequences, count // parts
        if sequences is None:
            rows, next_rows = self._memory.draw(count)
            pairs = zip(torch.split(rows, steps), torch.split(next_rows, steps), strict=True)
            return [Part(Places(*pair), None) for pair in pairs]
        drawn = self._memory.draw_sequences(max(1, steps // sequences.stride), parts)
        return [Part(Places(each.step_rows, each.next_rows), each) for each in drawn]

    def read(self, part: Part) -> Batch:
        """Reads what was drawn."""
        rows, next_rows = part.places
        transitions = self.transitions(rows, next_rows)
        storage = self._memory.storage
        masks = storage[ACTION_MASK] if self._branches and self._memory.masked else None
        return Batch(
            transitions.observations,
            transitions.next_observations,
            None if transitions.continuous is None else torch.tanh(transitions.continuous),
            None if transitions.discrete is None else transitions.discrete + self._offsets,
            None if masks is None else masks.index_select(0, rows),
            None if masks is None else masks.index_select(0, next_rows),
            self._signals.evaluate(transitions).float(),
            transitions.terminated.float(),
            None if part.sequences is None else self._remembered(part.sequences),
        )

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
