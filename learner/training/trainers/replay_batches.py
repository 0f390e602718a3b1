"""Minibatches of replay memory: draws and reads them, and computes the inputs of policies and twin critics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import numpy as np
import torch
from rollcast.enums import Squash
from rollcast.specs import BehaviorSpec
from torch import Tensor

from learner.training.buffers.columns import ACTION_MASK, MEMORY, TERMINATED, observation_column
from learner.training.buffers.replay import Places, ReplayMemory
from learner.training.buffers.replay_sequences import DrawnSequences
from learner.training.buffers.transfer import to_device
from learner.training.networks.distributions import branch_offsets
from learner.training.networks.encoders import Encoded
from learner.training.networks.lstm import Unrolled
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import squashed
from learner.training.networks.twin import TwinCritic
from learner.training.rewards.signals import SignalSet
from learner.training.rewards.transitions import Transitions
from learner.training.trainers.transitions import TransitionReader

ACTING_STEPS: Final = 64
"""Steps on which a policy without memory is tried after a turn. A diverged policy fails on any step."""


@dataclass(frozen=True, slots=True)
class Warm:
    """The burn-in of W of S sequences: steps before them that warm memories, without gradient.

    Attributes:
        observations: ``[burn_in * W, *shape]`` each, packed.
        sequences: ``[W]`` int64, the sequences.
        batch_sizes: ``[burn_in]`` int64 on the CPU.
    """

    observations: Sequence[Tensor]
    sequences: Tensor
    batch_sizes: Tensor


class Remembers(Protocol):
    """A network with a memory."""

    def remember(self, observations: Sequence[Tensor], sequences: Unrolled) -> Tensor:
        """Computes the memory ``[S, memory_size]`` after packed sequences."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """The layout of B steps as S sequences of R packed rows (`learner.training.buffers.sequences.PackedRows`).

    Attributes:
        observations: ``[R, *shape]`` each.
        now: ``[B]`` int64, indices of the steps among the R rows; the observations after them are the rows from S on.
        batch_sizes: ``[L + 1]`` int64 on the CPU, number of sequences with a row at each position.
        memory: ``[S, memory_size]``, memory of the policy before each sequence, or before its burn-in.
        warm: The burn-in; None if no sequence has one.
    """

    observations: Sequence[Tensor]
    now: Tensor
    batch_sizes: Tensor
    memory: Tensor
    warm: Warm | None = None

    @torch.no_grad()
    def warmed(self, network: Remembers, memory: Tensor) -> Tensor:
        """Returns the memory ``[S, memory_size]`` of a network before the sequences.

        Args:
            network: The network.
            memory: ``[S, memory_size]``, its memory before the burn-in.
        """
        warm = self.warm
        if warm is None:
            return memory
        before = Unrolled(warm.batch_sizes, memory.index_select(0, warm.sequences))
        return memory.index_copy(0, warm.sequences, network.remember(warm.observations, before))

    def after(self, rows: Tensor) -> Tensor:
        """Returns the rows ``[B, ...]`` that follow the steps, out of ``[R, ...]``."""
        return rows[self.memory.shape[0] :]


@dataclass(frozen=True, slots=True)
class Beginnings:
    """First observations of S episodes, which follow the terminal steps of S sequences.

    Attributes:
        observations: ``[S, *shape]`` each.
        sequences: ``[B]`` int64, sequence of each step.
        terminated: ``[B, 1]`` bool, whether the episode terminated with the step.
        batch_sizes: ``[1]`` int64 on the CPU, which holds S.
    """

    observations: Sequence[Tensor]
    sequences: Tensor
    terminated: Tensor
    batch_sizes: Tensor

    def behind_ends(self, after: Tensor, begun: Tensor) -> Tensor:
        """Returns the rows ``[B, ...]`` that follow the steps, those of the beginnings ``[S, ...]`` after ends."""
        return torch.where(self.terminated, begun.index_select(0, self.sequences), after)


@dataclass(frozen=True, slots=True)
class Batch:
    """B steps drawn from replay memory.

    Attributes:
        observations: ``[B, *shape]`` each.
        next_observations: ``[B, *shape]`` each, from which the step bootstraps: the observation after it, or, after a
            terminal step and if a signal ignores ends, one that begins an episode.
        draws: ``[B, n]``, raw draws of the policy for each continuous axis; None without continuous actions.
        actions: ``[B, n]`` in [-1, 1], squashed draws; None without continuous actions.
        choices: ``[B, b]`` int64, each plus the offset of its branch; None without discrete actions.
        masks: ``[B, A]``; None if everything was always allowed.
        next_masks: ``[B, A]``, for the actions in `next_observations`; None if everything was always allowed.
        rewards: ``[B, K]`` float32, rewards of the reward signals.
        discounts: ``[B, K]`` float32, factor of each signal's value after the step: its gamma, or 0 if the episode
            terminated and the signal does not ignore ends. An interrupted episode is not terminated.
        remembered: Layout of the sequences; None for networks without memory.
        beginnings: Observations that follow terminal steps; None without memory, or if no signal ignores ends.
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
    beginnings: Beginnings | None = None


class Hidden(NamedTuple):
    """The input of a policy's heads in a minibatch.

    Attributes:
        now: ``[B, size]``.
        after: ``[B, size]``, in the observations from which the step bootstraps; carries no gradient.
    """

    now: Tensor
    after: Tensor


def hidden_of(policy: PolicyNetwork, batch: Batch) -> Hidden:
    """Computes the input of a policy's heads."""
    remembered, beginnings = batch.remembered, batch.beginnings
    if remembered is None:
        with torch.no_grad():
            after = policy.body.forward(batch.next_observations)
        return Hidden(policy.body.forward(batch.observations), after)
    memory = remembered.warmed(policy.body, remembered.memory)
    rows = policy.body.forward(remembered.observations, Unrolled(remembered.batch_sizes, memory))
    after = remembered.after(rows.detach())
    if beginnings is not None:
        with torch.no_grad():
            nothing = Unrolled(beginnings.batch_sizes, torch.zeros_like(remembered.memory))
            after = beginnings.behind_ends(after, policy.body.forward(beginnings.observations, nothing))
    return Hidden(rows.index_select(0, remembered.now), after)


@torch.no_grad()
def can_act(policy: PolicyNetwork, batch: Batch) -> Tensor:
    """Returns a scalar bool on the device: whether a policy's outputs are finite on the steps of a minibatch.

    Parameters can be finite while the outputs are not; actors could not act with such a policy.

    Args:
        policy: The policy that would be published next.
        batch: The newest minibatch.
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
    if remembered is None:
        return critic.encode(batch.observations)
    # without the observations after the last steps
    return critic.encode(batch.observations, remembered.batch_sizes[1:], _critic_memory(critic, remembered))


def encode_next(target: TwinCritic, batch: Batch) -> Encoded:
    """Encodes the observations from which the B steps bootstrap, for target critics."""
    remembered, beginnings = batch.remembered, batch.beginnings
    if remembered is None:
        return target.encode(batch.next_observations)
    memory = _critic_memory(target, remembered)
    values, goals = target.encode(remembered.observations, remembered.batch_sizes, memory)
    after = Encoded(remembered.after(values), None if goals is None else remembered.after(goals))
    if beginnings is None:
        return after
    begun = target.encode(beginnings.observations, beginnings.batch_sizes)
    values = beginnings.behind_ends(after.values, begun.values)
    if after.goals is None or begun.goals is None:
        return Encoded(values, None)
    return Encoded(values, beginnings.behind_ends(after.goals, begun.goals))


def _critic_memory(critic: TwinCritic, remembered: Remembered) -> Tensor | None:
    """Returns the memory ``[S, memory_size]`` of critics before the sequences; None is zeros."""
    if remembered.warm is None:
        return None
    return remembered.warmed(critic, torch.zeros_like(remembered.memory))


class Part(NamedTuple):
    """The location of a minibatch, or of a separately computed part of a minibatch.

    Attributes:
        places: Places of its steps.
        sequences: Layout of the sequences; None without memory.
        starts: Places of observations that begin episodes: one for each step, or one for each sequence; None if no
            signal ignores ends.
    """

    places: Places
    sequences: DrawnSequences | None
    starts: Tensor | None = None

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.places.rows.shape[0]


class BatchMaker:
    """Reads minibatches of a replay memory.

    Args:
        spec: Observations and actions of the behavior.
        memory: The replay memory to draw from.
        signals: Compute the rewards of each step.
        squash: How actors squash a continuous draw.
        choices: Generator on the CPU that draws beginnings of episodes.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        memory: ReplayMemory,
        signals: SignalSet,
        squash: Squash,
        choices: torch.Generator,
    ) -> None:
        self._memory = memory
        self._choices = choices
        self._continues = bool(signals.ignores_ends.any())
        self._signals = signals
        self._squash = squash
        self._gamma = signals.gamma.float()
        self._ends = torch.where(signals.ignores_ends, 0.0, self._gamma)  # discount that the end of an episode removes
        self._reader = TransitionReader(spec, signals.gamma.device, needs_observations=True)
        self._observations = tuple(observation_column(observation.name) for observation in spec.observations)
        self._branches = tuple(spec.action.discrete_branches)
        self._offsets = branch_offsets(self._branches, signals.gamma.device)

    def draw(self, count: int, parts: int = 1) -> list[Part]:
        """Draws steps, or sequences that would train ``count`` steps if all were whole (at least one per part).

        Args:
            count: Steps of all parts together.
            parts: Number of equal parts.
        """
        sequences, steps = self._memory.sequences, count // parts
        if sequences is None:
            rows, next_rows = self._memory.draw(count)
            pairs = zip(torch.split(rows, steps), torch.split(next_rows, steps), strict=True)
            return [Part(Places(*pair), None, self._starts(len(pair[0]))) for pair in pairs]
        drawn = self._memory.draw_sequences(max(1, steps // sequences.stride), parts)
        return [Part(Places(each.step_rows, each.next_rows), each, self._starts(each.sequences)) for each in drawn]

    def _starts(self, count: int) -> Tensor | None:
        return self._memory.draw_starts(count, self._choices) if self._continues else None

    def read(self, part: Part) -> Batch:
        """Reads the minibatch of a drawn part."""
        rows, next_rows = part.places
        transitions = self.transitions(rows, next_rows)
        terminated = transitions.terminated.float().unsqueeze(1)
        masks = self._memory.storage[ACTION_MASK] if self._branches and self._memory.masked else None
        next_observations, beginnings = transitions.next_observations, None
        if part.starts is not None:
            starts = part.starts
            if part.sequences is not None:
                beginnings = self._beginnings(starts, part.sequences, terminated > 0.0)
                starts = starts.index_select(0, beginnings.sequences)
            next_rows = torch.where(terminated.squeeze(1) > 0.0, starts, next_rows)
            next_observations = self._seen(next_rows)
        return Batch(
            transitions.observations,
            next_observations,
            transitions.continuous,
            None if transitions.continuous is None else squashed(transitions.continuous, self._squash),
            None if transitions.discrete is None else transitions.discrete + self._offsets,
            None if masks is None else masks.index_select(0, rows),
            None if masks is None else masks.index_select(0, next_rows),
            self._signals.evaluate(transitions).float(),
            torch.addcmul(self._gamma, terminated, self._ends, value=-1.0),
            None if part.sequences is None else self._remembered(part.sequences),
            beginnings,
        )

    def _seen(self, rows: Tensor) -> list[Tensor]:
        return [self._memory.storage[name].index_select(0, rows) for name in self._observations]

    def _remembered(self, drawn: DrawnSequences) -> Remembered:
        memory, warm = self._memory.storage[MEMORY].index_select(0, drawn.memory_rows), None
        if drawn.warm is not None:
            warm = Warm(self._seen(drawn.warm.rows), drawn.warm.sequences, drawn.warm.batch_sizes)
        return Remembered(self._seen(drawn.rows), drawn.now, drawn.batch_sizes, memory, warm)

    def _beginnings(self, starts: Tensor, drawn: DrawnSequences, terminated: Tensor) -> Beginnings:
        counts = drawn.batch_sizes[1:].numpy()  # steps at each position, of the first sequences
        sequences = to_device(np.concatenate([np.arange(count) for count in counts]), starts.device)
        return Beginnings(self._seen(starts), sequences, terminated, drawn.batch_sizes[:1])

    def rewards(self, rows: Tensor) -> Tensor:
        """Computes the current rewards of steps at places ``[B]`` int64: ``[B, K]`` float64."""
        return self._signals.evaluate(self.transitions(rows, rows + 1))

    def transitions(self, rows: Tensor, next_rows: Tensor) -> Transitions:
        """Reads the steps at places ``[B]`` int64 and the observations after them."""
        storage = self._memory.storage
        return self._reader.at(storage, rows, next_rows, storage[TERMINATED].index_select(0, rows).double())
