"""The queue of a behavior in lock-step: holds everything until the round is complete, then returns it sorted.

The boundaries and the order of chunks depend on timing. Sorted here, a round does not depend on which actor was faster:
one chunk for each actor and team, its segments by environment, agent, episode and step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import GameResult
from rollcast.enums import ActionSource, AssignmentRole, ColumnRole, GroupEnd, Purpose
from rollcast.trajectories import Chunk

from learner.link.to_trainers import Declared, Experience, QueueFull
from learner.link.turns import TurnKind
from learner.training.trainers.conductor import Conductor
from learner.training.trainers.outcome_report import ExperienceQueue, OutcomeReport

Array = NDArray[Any]
Index = NDArray[np.int64]

_ABSENT: Final[Mapping[str, float]] = MappingProxyType(
    {
        "action_mask": 1,
        "final_action_mask": 1,
        "action_source": int(ActionSource.POLICY),
        "group_end": int(GroupEnd.CONTINUES),
        "purpose": int(Purpose.TRAIN),
        "episode/purpose": int(Purpose.TRAIN),
        "episode/opponent": -1,
        "episode/role": int(AssignmentRole.LEARN),
        "episode/result": int(GameResult.UNKNOWN),
        "episode/group_end": int(GroupEnd.CONTINUES),
        "prev_discrete_action": -1,
    }
)
"""Value of an absent column; the others have 0, and numbers of environments (info/) have NaN."""
_VERSION_OFFSET: Final = "version_offset"


def in_order(items: Iterable[Experience], memory_stride: int = 0) -> list[Experience]:
    """Returns one chunk for each actor and team, by actor index and team.

    Args:
        items: Received experience, in any order.
        memory_stride: Rows between two records of memory; 0 for a policy without memory.
    """
    groups: dict[tuple[int, int], list[Experience]] = {}
    for item in items:
        groups.setdefault((item.actor_index, item.chunk.team), []).append(item)
    return [_joined(groups[key], memory_stride) for key in sorted(groups)]


def _joined(items: list[Experience], memory_stride: int) -> Experience:
    items.sort(key=lambda item: (item.session_id, item.chunk.sequence))
    return replace(
        items[-1],
        chunk=joined([item.chunk for item in items], memory_stride),
        encoded_bytes=sum(item.encoded_bytes for item in items),
        received_at=min(item.received_at for item in items),
    )


def joined(chunks: Sequence[Chunk], memory_stride: int = 0) -> Chunk:
    """Returns one chunk with the contents of all, segments sorted; episodes and statistics keep their order.

    Args:
        chunks: Chunks of one behavior id of one actor, in the order of their numbers; at least one.
        memory_stride: Rows between two records of memory; 0 for a policy without memory.
    """
    last = chunks[-1]
    chunk = Chunk(
        sequence=last.sequence,
        generation=last.generation,
        behavior_index=last.behavior_index,
        team=last.team,
        produced_steps=last.produced_steps,
        discarded=dict(last.discarded),
        ghost_steps=last.ghost_steps,
        age_seconds=max(each.age_seconds for each in chunks),
        segments=sum(each.segments for each in chunks),
        rows=sum(each.rows for each in chunks),
        episodes=sum(each.episodes for each in chunks),
        agents=last.agents,
        stat_keys=tuple(dict.fromkeys(key for each in chunks for key in each.stat_keys)),
        opponents=tuple(dict.fromkeys(name for each in chunks for name in each.opponents)),
        lockstep_round=last.lockstep_round,
    )
    _join_columns(chunk, chunks, memory_stride)
    _join_versions(chunk, chunks)
    if chunk.segments:
        _sort(chunk, memory_stride)
    return chunk


def _join_columns(chunk: Chunk, chunks: Sequence[Chunk], memory_stride: int) -> None:
    for name, role in {name: role for each in chunks for name, role in each.roles.items()}.items():
        if name == _VERSION_OFFSET:
            continue
        counts = [_rows_of(each, role, memory_stride) for each in chunks]
        present = [each.columns[name] for each in chunks if name in each.columns]
        model = present[0]
        if any((part.dtype, part.shape[1:]) != (model.dtype, model.shape[1:]) for part in present):
            continue  # a plug-in's column that changed its form cannot be joined
        parts = [
            _pointing(each.columns[name], name, each, chunk)
            if name in each.columns
            else np.full((count, *model.shape[1:]), _absent(name), model.dtype)
            for each, count in zip(chunks, counts, strict=True)
        ]
        chunk.columns[name] = np.concatenate(parts)
        chunk.roles[name] = role


def _absent(name: str) -> float:
    return np.nan if name.startswith("info/") else _ABSENT.get(name, 0)


def _rows_of(chunk: Chunk, role: ColumnRole, memory_stride: int) -> int:
    """Returns the number of rows that a column of a role has in a chunk, if present."""
    if role is ColumnRole.STEP:
        return chunk.rows
    if role is ColumnRole.EPISODE:
        return chunk.episodes
    if role is ColumnRole.STAT:
        return len(chunk.columns.get("stat/key", ()))
    if role is ColumnRole.MEMORY:
        return int(_memory_rows(chunk, memory_stride).sum()) if chunk.segments else 0
    return chunk.segments


def _pointing(column: Array, name: str, chunk: Chunk, into: Chunk) -> Array:
    """Returns a column with its indices changed to the joined lists of names."""
    names, joined_names = {
        "stat/key": (chunk.stat_keys, into.stat_keys),
        "episode/opponent": (chunk.opponents, into.opponents),
    }.get(name, ((), ()))
    if names == joined_names:
        return column
    places = np.array([*(joined_names.index(each) for each in names), -1], np.int64)  # -1 stays -1
    return places[column].astype(column.dtype)


def _join_versions(chunk: Chunk, chunks: Sequence[Chunk]) -> None:
    parts = []
    for each in chunks:
        versions = np.full(each.rows, each.base_version, np.int64)
        offsets = each.columns.get(_VERSION_OFFSET)
        parts.append(versions if offsets is None else versions + offsets)
    versions = np.concatenate(parts)
    if not len(versions):
        chunk.base_version = chunks[-1].base_version
        return
    chunk.base_version = int(versions.min())
    if (versions != chunk.base_version).any():
        chunk.columns[_VERSION_OFFSET] = (versions - chunk.base_version).astype(np.uint32)
        chunk.roles[_VERSION_OFFSET] = ColumnRole.STEP


def _sort(chunk: Chunk, memory_stride: int) -> None:
    columns = chunk.columns
    order = np.lexsort((columns["first_step"], columns["episode"], columns["agent"], columns["env"])).astype(np.int64)
    steps = _rows(columns["length"].astype(np.int64), order)
    memories = _rows(_memory_rows(chunk, memory_stride), order)
    by_role: dict[ColumnRole, Index] = {
        ColumnRole.STEP: steps,
        ColumnRole.SEGMENT: order,
        ColumnRole.FINAL: order,
        ColumnRole.MEMORY: memories,
    }
    for name, role in chunk.roles.items():
        rows = by_role.get(role)
        if rows is not None:
            columns[name] = columns[name][rows]


def _memory_rows(chunk: Chunk, memory_stride: int) -> Index:
    """Returns the number of memory records of each segment, int64 [S]."""
    lengths: Index = chunk.columns["length"].astype(np.int64)
    return -(-lengths // memory_stride) if memory_stride else np.zeros_like(lengths)


def _rows(lengths: Index, order: Index) -> Index:
    """Returns the rows of segments in another order, int64 [sum(lengths)]."""
    starts = (np.cumsum(lengths) - lengths)[order]
    sizes = lengths[order]
    rows: Index = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum(), dtype=np.int64)
    return rows


STRANGER: Final = "lockstep"
"""Reason for dropping steps that were taken outside of any round."""


class RoundQueue(ExperienceQueue):
    """Holds chunks until `release`, and notes the chunks that end an actor's round as they arrive.

    Args:
        behavior: The behavior whose experience it holds.
        outcomes: Records released experience; steps of sessions that play no round are dropped there.
        conductor: Tells the other learners of each round.

    Attributes:
        behavior: The behavior whose experience it holds.
    """

    def __init__(self, behavior: Declared, outcomes: OutcomeReport, conductor: Conductor | None = None) -> None:
        super().__init__(outcomes)
        self.behavior = behavior
        self._conductor = conductor or Conductor()
        self._newest = 0
        self._ended: dict[str, int] = {}
        self._released: list[Experience] = []
        self._too_large: list[int] = []

    @property
    def ended(self) -> Mapping[str, int]:
        """The newest round that each session has ended."""
        return self._ended

    @property
    def has_released(self) -> bool:
        """Returns whether a released round waits for the trainer."""
        return bool(self._released)

    def put(self, item: Experience) -> None:
        """Appends a chunk; once the queue is closed, its steps are dropped."""
        if item.chunk.lockstep_round:
            self._ended[item.session_id] = item.chunk.lockstep_round
        self._newest = item.sequence
        super().put(item)

    def note_full(self, message: QueueFull) -> None:
        """Records that a round has no room, and drops the chunks of the actor that takes most of it, if one is named."""
        if message.place is None:
            super().note_full(message)
            return
        kept = [item for item in self._items if item.actor_index != message.place]
        self.outcomes.drop(STRANGER, sum(item.chunk.rows for item in self._items) - sum(i.chunk.rows for i in kept))
        self._items = deque(kept)
        self._too_large.append(message.place)

    def take_too_large(self) -> list[int]:
        """Returns the places of the actors whose chunks were dropped since the last call."""
        taken, self._too_large = self._too_large, []
        return taken

    def release(self, players: Collection[str]) -> tuple[Experience, ...]:
        """Passes the sorted round to the trainer: one chunk for each actor and team. Drops steps of other sessions.

        Args:
            players: Sessions that took part.

        Returns:
            Experience of the round.
        """
        self._conductor.tell(self.behavior.index, TurnKind.RELEASE, self._newest, players)
        items = super().get()
        for session_id in [each for each in self._ended if each not in players]:
            del self._ended[session_id]
        strange = sum(item.chunk.rows for item in items if item.session_id not in players)
        self.outcomes.drop(STRANGER, strange)
        found = in_order((item for item in items if item.session_id in players), self.behavior.memory_stride)
        self._released += found
        return tuple(found)

    def get(self) -> list[Experience]:
        """Takes the released experience only."""
        taken, self._released = self._released, []
        return taken

    def _drain(self) -> list[Experience]:
        """Takes everything, released or not."""
        return [*self.get(), *super().get()]
