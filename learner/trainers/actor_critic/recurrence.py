"""What recurrent actor-critics remember: recorded memories of the policy, and those of a critic of its own.

The policy's memories come with the experience. What a critic remembers no actor knows: the learner computes it, over
whole segments, and carries it from one segment of an episode to the next, over updates if need be. A segment whose
predecessor never came (it was dropped, or the learner restarted amid the episode) begins with zeros.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.buffers.buffer import Plan, Segment
from learner.buffers.columns import MEMORY
from learner.buffers.sequences import Cut, SequenceTable, cut_segments, pack, split_by_steps
from learner.buffers.transfer import to_device
from learner.networks.heads import ValueHead
from learner.networks.lstm import Memory, Unrolled
from learner.networks.value import ActorCritic

MAX_CARRIED = 2**14
"""Agents whose episodes go on and whose memories are kept; beyond that, those that were seen longest ago are forgotten."""

Index = NDArray[np.int64]


class _Live(NamedTuple):
    """What a critic remembers of an episode that goes on.

    Attributes:
        episode: its number.
        next_step: the first one that was not seen.
        row: where the memory is.
        wave: the earliest wave in which the episode can go on.
    """

    episode: int
    next_step: int
    row: int
    wave: int


class _Course(NamedTuple):
    """In which order Q sequences are gone through: those of a wave together, for each needs the one before it.

    Attributes:
        before: ``[Q]``, row of the pool with the memory before each sequence.
        waves: indices of sequences, wave by wave.
        first_after: row of the pool for the memory after the first sequence; the others' follow.
    """

    before: Index
    waves: list[Index]
    first_after: int


class Recurrence:
    """Values and memories of one actor-critic with memory.

    Args:
        network: the actor-critic.
        stride: steps of a sequence.
        observations: names of the observation columns.
        rows_at_once: rows that one call of a network takes at most.
    """

    def __init__(self, network: ActorCritic, stride: int, observations: tuple[str, ...], rows_at_once: int) -> None:
        self._network = network
        self._stride = stride
        self._observations = observations
        self._rows_at_once = rows_at_once
        self._live: dict[tuple[int, int, int], _Live] = {}
        self._carried: Tensor | None = None  # [C, memory_size]

    def forget(self) -> None:
        """Forgets what was carried over: it came of parameters or observations that are of no use."""
        self._live.clear()
        self._carried = None

    def table(self, plan: Plan, storage: Mapping[str, Tensor]) -> SequenceTable:
        """Cuts the taken segments, and reads what the policy remembered before each sequence."""
        cut = cut_segments(np.array([segment.steps for segment in plan.segments], np.int64), self._stride)
        starts = to_device(cut.starts, plan.step_rows.device)
        return SequenceTable(cut, storage[MEMORY].index_select(0, plan.step_rows.index_select(0, starts)), None)

    @torch.no_grad()
    def evaluate(self, plan: Plan, storage: Mapping[str, Tensor], table: SequenceTable) -> tuple[Tensor, SequenceTable]:
        """Computes values of all rows, and completes the table with what the critic remembers.

        A final row is valued with the memory after the last step of its segment.

        Args:
            plan: of the update.
            storage: the ring.
            table: of `table`.

        Returns:
            ``[R, K]`` float32, and the table.
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
        count = len(table.cut.starts)
        room = table.policy.new_zeros(count, memory.memory_size)
        if isinstance(self._network.critic, ValueHead):
            pool = torch.cat((table.policy, room))
            course = _Course(np.arange(count), [np.arange(count)], count)
            values: Tensor = head(self._unroll(memory, encoded, plan, table.cut, pool, course))
            return values, table
        kept = room[:0] if self._carried is None else self._carried
        pool = torch.cat((room.new_zeros(1, memory.memory_size), kept, room))
        course = self._follow(plan.segments, table.cut, 1 + len(kept))
        values = head(self._unroll(memory, encoded, plan, table.cut, pool, course))
        critic = pool.index_select(0, _on(pool, course.before))
        self._carry(pool)
        return values, replace(table, critic=critic)

    def _unroll(  # noqa: PLR0917 - the parts of one computation
        self, memory: Memory, encoded: Tensor, plan: Plan, cut: Cut, pool: Tensor, course: _Course
    ) -> Tensor:
        """Goes through all sequences and writes what is remembered after each into the pool; returns ``[R, size]``."""
        lengths = np.array([segment.steps for segment in plan.segments], np.int64)
        row_of_step = np.arange(lengths.sum()) + np.repeat(np.arange(len(lengths)), lengths)
        packs = [pack(cut, chosen) for wave in course.waves for chosen in split_by_steps(cut, wave, self._rows_at_once)]
        # One transfer for each array of indices, however many waves there are.
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

    def _follow(self, segments: Sequence[Segment], cut: Cut, first_after: int) -> _Course:
        """Finds what comes before each sequence, and notes which episodes go on."""
        before = np.zeros(len(cut.starts), np.int64)
        wave = np.zeros(len(cut.starts), np.int64)
        ends = np.searchsorted(cut.segments, np.arange(len(segments)), side="right").tolist()
        begin = 0
        for segment, end in zip(segments, ends, strict=True):
            place = segment.place
            if place is None:
                raise ValueError("a segment of a recurrent network has no place in an episode")
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
        """Keeps the memories of episodes that go on."""
        for key in list(self._live)[: max(0, len(self._live) - MAX_CARRIED)]:
            del self._live[key]
        self._carried = pool.index_select(0, _on(pool, np.array([live.row for live in self._live.values()], np.int64)))
        # Row 0 of every pool holds zeros.
        self._live = {key: live._replace(row=row, wave=0) for row, (key, live) in enumerate(self._live.items(), 1)}


def _on(tensor: Tensor, index: Index) -> Tensor:
    return to_device(index, tensor.device)
