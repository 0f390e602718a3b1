"""Minibatches of replay memory: what is drawn, how it is read, and what policies and twin critics compute of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.buffers.columns import ACTION_MASK, MEMORY, TERMINATED, observation_column
from learner.buffers.replay import Places, ReplayMemory
from learner.buffers.replay_sequences import DrawnSequences
from learner.networks.distributions import branch_offsets
from learner.networks.encoders import Encoded
from learner.networks.lstm import Unrolled
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import squashed
from learner.networks.twin import TwinCritic
from learner.rewards.signals import SignalSet
from learner.rewards.transitions import Transitions
from learner.trainers.transitions import TransitionReader

ACTING_STEPS: Final = 64
"""On so many steps a policy without memory is tried after a turn: one that has diverged shows it on any."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """How B steps are S sequences of R rows, packed (`learner.buffers.sequences.PackedRows`).

    Attributes:
        observations: ``[R, *shape]`` each.
        now: ``[B]`` int64, which of the R are the steps; what was seen after them are the rows from S on.
        batch_sizes: ``[L + 1]`` int64 on the CPU, sequences that have a row at each place.
        memory: ``[S, memory_size]``, what the policy remembered before each sequence.
    """

    observations: Sequence[Tensor]
    now: Tensor
    batch_sizes: Tensor
    memory: Tensor

    def after(self, rows: Tensor) -> Tensor:
        """Returns those of R rows that were seen after the steps, ``[B, ...]``."""
        return rows[self.memory.shape[0] :]


@dataclass(frozen=True, slots=True)
class Batch:
    """B steps drawn from replay memory.

    Attributes:
        observations: ``[B, *shape]`` each.
        next_observations: the same, after the step.
        draws: ``[B, n]``, what the policy drew for each continuous axis; None without continuous actions.
        actions: ``[B, n]`` in [-1, 1], what these draws were squashed to; or None.
        choices: ``[B, b]`` int64, each plus the offset of its branch, or None without discrete actions.
        masks: ``[B, A]``, or None if everything was always allowed.
        next_masks: the same, after the step.
        rewards: ``[B, K]`` float32, of the reward signals.
        discounts: ``[B, K]`` float32, what a signal's value after the step counts: its gamma, and 0 where the episode
            terminated, except for signals that ignore ends. An interrupted episode is not terminated.
        remembered: how they are sequences, for networks with a memory, and only for those.
    """

    observations: Sequence[Tensor]
    next_observations: Sequence[Tensor]
    draws: Tensor | None
    actions: Tensor | None
    choices: Tensor | None
    masks: Tensor | None
    next_masks: Tensor | None
    rewards: Tensor
    discounts: Tensor
    remembered: Remembered | None = None


class Hidden(NamedTuple):
    """What the heads of a policy see in a minibatch.

    Attributes:
        now: ``[B, size]``.
        after: the same, after the step; no gradient goes through it.
    """

    now: Tensor
    after: Tensor


def hidden_of(policy: PolicyNetwork, batch: Batch) -> Hidden:
    """Computes what the heads of a policy see."""
    remembered = batch.remembered
    if remembered is None:
        with torch.no_grad():
            after = policy.body.forward(batch.next_observations)
        return Hidden(policy.body.forward(batch.observations), after)
    rows = policy.body.forward(remembered.observations, Unrolled(remembered.batch_sizes, remembered.memory))
    return Hidden(rows.index_select(0, remembered.now), remembered.after(rows.detach()))


@torch.no_grad()
def can_act(policy: PolicyNetwork, batch: Batch) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on the steps of a minibatch.

    All parameters may be finite and what they compute from observations not: actors could not act.

    Args:
        policy: as it would be published next.
        batch: the newest minibatch.
    """
    masks = batch.masks
    if batch.remembered is not None:
        hidden = hidden_of(policy, batch).now
    else:
        hidden = policy.body.forward([values[:ACTING_STEPS] for values in batch.observations])
        masks = None if masks is None else masks[:ACTING_STEPS]
    return policy.act(hidden, masks).is_finite()


def encode(critic: TwinCritic, batch: Batch) -> Encoded:
    """Encodes the B steps for critics."""
    remembered = batch.remembered
    sizes = None if remembered is None else remembered.batch_sizes[1:]  # without what was seen after the last steps
    return critic.encode(batch.observations, sizes)


def encode_next(target: TwinCritic, batch: Batch) -> Encoded:
    """Encodes what was seen after the B steps, for target critics."""
    remembered = batch.remembered
    if remembered is None:
        return target.encode(batch.next_observations)
    values, goals = target.encode(remembered.observations, remembered.batch_sizes)
    return Encoded(remembered.after(values), None if goals is None else remembered.after(goals))


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
        squash: what actors do to a continuous draw.
    """

    def __init__(self, spec: BehaviorSpec, memory: ReplayMemory, signals: SignalSet, squash: Squash) -> None:
        self._memory = memory
        self._signals = signals
        self._squash = squash
        self._gamma = signals.gamma.float()
        self._ends = torch.where(signals.ignores_ends, 0.0, self._gamma)  # what the end of an episode takes of it
        self._reader = TransitionReader(spec, signals.gamma.device, needs_observations=True)
        self._observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._branches = tuple(spec.action.discrete_branches)
        self._offsets = branch_offsets(self._branches, signals.gamma.device)

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
        terminated = transitions.terminated.float().unsqueeze(1)
        masks = self._memory.storage[ACTION_MASK] if self._branches and self._memory.masked else None
        return Batch(
            transitions.observations,
            transitions.next_observations,
            transitions.continuous,
            None if transitions.continuous is None else squashed(transitions.continuous, self._squash),
            None if transitions.discrete is None else transitions.discrete + self._offsets,
            None if masks is None else masks.index_select(0, rows),
            None if masks is None else masks.index_select(0, next_rows),
            self._signals.evaluate(transitions).float(),
            torch.addcmul(self._gamma, terminated, self._ends, value=-1.0),
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
