"""Memories of recurrent actor-critics: those recorded for the policy and those of a separate critic.

The policy's memories arrive with the experience. Actors do not know the critic's memories: the learner computes them
over whole segments, and carries them to the next segment of an episode, also across updates. A segment without its
predecessor (dropped, or the learner restarted during the episode) begins with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.training.buffers.buffer import Segment, UpdateRows
from learner.training.buffers.columns import MEMORY
from learner.training.buffers.layout import split
from learner.training.buffers.sequences import Cut, SequenceTable, cut_segments, pack
from learner.training.buffers.transfer import to_device
from learner.training.networks.heads import ValueHead
from learner.training.networks.lstm import Memory, Unrolled
from learner.training.networks.value import ActorCritic

MAX_CARRIED = 2**14
"""Largest number of agents whose memories are kept while their episodes run; those unseen for longest are forgotten
first."""

Index = NDArray[np.int64]


class _Live(NamedTuple):
    """The critic's memory of a running episode.

    Attributes:
        episode: Number of the episode.
        next_step: First step that has not been seen.
        row: Row of the memory.
        wave: Earliest wave in which the episode can continue.
    """

    episode: int
    next_step: int
    row: int
    wave: int


class _Course(NamedTuple):
    """The order in which Q sequences are evaluated: one wave at a time, as each sequence needs the one before it.

    Attributes:
        before: ``[Q]``, pool row with the memory before each sequence.
        waves: Indices of sequences, wave by wave.
        first_after: Pool row for the memory after the first sequence; the rows of the others follow.
    """

    before: Index
    waves: list[Index]
    first_after: int


def sequence_table(plan: UpdateRows, storage: Mapping[str, Tensor], stride: int) -> SequenceTable:
    """Cuts the taken segments into sequences and reads the policy's memory before each.

    Args:
        plan: Rows of the update.
        storage: Columns of the ring.
        stride: Steps of a sequence.
    """
    cut = cut_segments(np.array([segment.steps for segment in plan.segments], np.int64), stride)
    starts = to_device(cut.starts, plan.step_rows.device)
    return SequenceTable(cut, storage[MEMORY].index_select(0, plan.step_rows.index_select(0, starts)), None)


class Recurrence:
    """Computes values and memories of one actor-critic with memory.

    Args:
        network: The actor-critic.
        observations: Names of the observation columns.
        rows_at_once: Most rows in one call of a network.
    """

    def __init__(self, network: ActorCritic, observations: tuple[str, ...], rows_at_once: int) -> None:
        self._network = network
        self._observations = observations
        self._rows_at_once = rows_at_once
        self._memories = CarriedMemories(rows_at_once)

    def forget(self) -> None:
        """Forgets the carried memories, because they result from unusable parameters or observations."""
        self._memories.forget()

    @torch.no_grad()
    def evaluate(
        self, plan: UpdateRows, storage: Mapping[str, Tensor], table: SequenceTable
    ) -> tuple[Tensor, SequenceTable]:
        """Computes the values of all rows and adds the critic's memories to the table.

        The value of a final row uses the memory after the last step of its segment.

        Args:
            plan: Rows of the update.
            storage: Columns of the ring.
            table: Result of `sequence_table`.

        Returns:
            Outputs of the value heads ``[R, K]`` float32, and the table.
        """
        body, head = self._network.critic_body, self._network.value_head
        memory = body.memory
        if memory is None:
            raise ValueError("the critic has no memory")
        encoded = torch.cat(
            [
                body.encode([storage[name].index_select(0, rows) for name in self._observations])
                for rows in torch.split(plan.rows, self._rows_at_once)
            ]
        )
        if isinstance(self._network.critic, ValueHead):
            count = len(table.cut.starts)
            pool = torch.cat((table.policy, table.policy.new_zeros(count, memory.memory_size)))
            course = _Course(np.arange(count), [np.arange(count)], count)
            values: Tensor = head(_unroll(memory, encoded, plan, table.cut, pool, course, self._rows_at_once))
            return values, table
        hidden, critic = self._memories.unroll(memory, encoded, plan, table.cut)
        return head(hidden), replace(table, critic=critic)


class CarriedMemories:
    """Memories of a critic, which the learner computes and carries from segment to segment of an episode.

    Args:
        rows_at_once: Most rows in one call of a network.
    """

    def __init__(self, rows_at_once: int) -> None:
        self._rows_at_once = rows_at_once
        self._live: dict[tuple[int, int, int], _Live] = {}
        self._carried: Tensor | None = None  # [C, memory_size]

    def forget(self) -> None:
        """Forgets the carried memories."""
        self._live.clear()
        self._carried = None

    def unroll(self, memory: Memory, encoded: Tensor, plan: UpdateRows, cut: Cut) -> tuple[Tensor, Tensor]:
        """Computes all sequences of an update.

        Args:
            memory: The recurrent part of the critic.
            encoded: Its inputs, ``[R, units]``.
            plan: Rows of the update.
            cut: Location of the sequences.

        Returns:
            Its outputs ``[R, size]``, and the memory before each sequence ``[Q, memory_size]``.
        """
        room = encoded.new_zeros(len(cut.starts), memory.memory_size)
        kept = room[:0] if self._carried is None else self._carried
        pool = torch.cat((room.new_zeros(1, memory.memory_size), kept, room))
        course = self._follow(plan.segments, cut, 1 + len(kept))
        hidden = _unroll(memory, encoded, plan, cut, pool, course, self._rows_at_once)
        before = pool.index_select(0, _on(pool, course.before))
        self._carry(pool)
        return hidden, before

    def _follow(self, segments: Sequence[Segment], cut: Cut, first_after: int) -> _Course:
        """Finds the predecessor of each sequence, and notes the episodes that continue."""
        before = np.zeros(len(cut.starts), np.int64)
        wave = np.zeros(len(cut.starts), np.int64)
        ends = np.searchsorted(cut.segments, np.arange(len(segments)), side="right").tolist()
        begin = 0
        for segment, end in zip(segments, ends, strict=True):
            place = segment.place
            if place is None:
                raise ValueError("a segment of a recurrent network has no position in an episode")
            key = (segment.actor_index, place.env, place.agent)
            known = self._live.pop(key, None)
            if known is None or (known.episode, known.next_step) != (place.episode, place.first_step):
                known = _Live(place.episode, place.first_step, 0, 0)
            before[begin] = known.row
            before[begin + 1 : end] = first_after + np.arange(begin, end - 1)
            wave[begin:end] = known.wave + np.arange(end - begin)
            if place.continues:
                next_step = place.first_step + segment.steps
                self._live[key] = _Live(place.episode, next_step, first_after + end - 1, known.wave + end - begin)
            begin = end
        order = np.argsort(wave, kind="stable")
        return _Course(before, np.split(order, np.cumsum(np.bincount(wave))[:-1]), first_after)

    def _carry(self, pool: Tensor) -> None:
        """Keeps the memories of episodes that continue."""
        for key in list(self._live)[: max(0, len(self._live) - MAX_CARRIED)]:
            del self._live[key]
        self._carried = pool.index_select(0, _on(pool, np.array([live.row for live in self._live.values()], np.int64)))
        # Row 0 of every pool holds zeros.
        self._live = {key: live._replace(row=row, wave=0) for row, (key, live) in enumerate(self._live.items(), 1)}


def _unroll(  # noqa: PLR0917 - the parts of one computation
    memory: Memory, encoded: Tensor, plan: UpdateRows, cut: Cut, pool: Tensor, course: _Course, rows_at_once: int
) -> Tensor:
    """Computes all sequences and writes the memory after each into the pool; returns ``[R, size]``."""
    lengths = np.array([segment.steps for segment in plan.segments], np.int64)
    row_of_step = np.arange(lengths.sum()) + np.repeat(np.arange(len(lengths)), lengths)
    packs = [pack(cut, chosen) for wave in course.waves for chosen in split(wave, cut.lengths, rows_at_once)]
    # One transfer for each array of indices, whatever the number of waves.
    rows = _on(pool, np.concatenate([row_of_step[item.steps] for item in packs]))
    before = _on(pool, np.concatenate([course.before[item.order] for item in packs]))
    after = _on(pool, course.first_after + np.concatenate([item.order for item in packs]))
    counts = [len(item.order) for item in packs]
    outputs = encoded.new_zeros(encoded.shape[0], memory.size)
    for item, places, begin, end in zip(
        packs,
        torch.split(rows, [len(item.steps) for item in packs]),
        torch.split(before, counts),
        torch.split(after, counts),
        strict=True,
    ):
        sequences = Unrolled(torch.from_numpy(item.batch_sizes), pool.index_select(0, begin))
        hidden, remembered = memory.unroll(encoded.index_select(0, places), sequences)
        outputs.index_copy_(0, places, hidden)
        pool.index_copy_(0, end, remembered)
    finals = _on(pool, np.cumsum(lengths + 1) - 1)
    last = np.searchsorted(cut.segments, np.arange(len(lengths)), side="right") - 1
    hidden, _ = memory(encoded.index_select(0, finals), pool.index_select(0, _on(pool, course.first_after + last)))
    return outputs.index_copy_(0, finals, hidden)


def _on(tensor: Tensor, index: Index) -> Tensor:
    return to_device(index, tensor.device)
