"""The queue of a behavior in lock-step: a trainer gets nothing until the round is complete, and then all of it, sorted.

When chunks were cut and in which order they came is a matter of time. Sorted here, a round does not depend on who was
faster: one chunk for each actor and team, its segments by environment, agent, episode and step.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ActionSource, ColumnRole, GroupEnd, Purpose
from rollcast.trajectories import Chunk

from learner.ingest.queue import TrajectoryQueue
from learner.ingest.wakeup import Wakeup
from learner.link.experience import Pace, QueuedChunk

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
        "prev_discrete_action": -1,
    }
)
"""What a column stands for where it is absent; all others stand for 0, and numbers of environments (info/) for NaN."""
_VERSION_OFFSET: Final = "version_offset"


def in_order(items: Iterable[QueuedChunk], memory_stride: int = 0) -> list[QueuedChunk]:
    """Returns one chunk for each actor and team, by actor index and team.

    Args:
        items: what came, in any order.
        memory_stride: rows between two records of memory; 0 for a policy without memory.
    """
    groups: dict[tuple[int, int], list[QueuedChunk]] = {}
    for item in items:
        groups.setdefault((item.actor_index, item.chunk.team), []).append(item)
    return [_joined(groups[key], memory_stride) for key in sorted(groups)]


def _joined(items: list[QueuedChunk], memory_stride: int) -> QueuedChunk:
    items.sort(key=lambda item: (item.session_id, item.chunk.sequence))
    return QueuedChunk(
        chunk=joined([item.chunk for item in items], memory_stride),
        session_id=items[-1].session_id,
        actor_index=items[-1].actor_index,
        encoded_bytes=sum(item.encoded_bytes for item in items),
        received_at=min(item.received_at for item in items),
    )


def joined(chunks: Sequence[Chunk], memory_stride: int = 0) -> Chunk:
    """Returns one chunk with everything that these hold, segments sorted; episodes and statistics stay as they came.

    Args:
        chunks: of one behavior id of one actor, in the order of their numbers; at least one.
        memory_stride: rows between two records of memory; 0 for a policy without memory.
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
            continue  # a column of a plug-in's own that changed its form: there is no joining it
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
    """Returns how many rows a column of a role has in a chunk, were it there."""
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
    """Returns a column whose numbers point into the joined lists of names."""
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
    """Returns how many records of memory each segment has, int64 [S]."""
    lengths: Index = chunk.columns["length"].astype(np.int64)
    return -(-lengths // memory_stride) if memory_stride else np.zeros_like(lengths)


def _rows(lengths: Index, order: Index) -> Index:
    """Returns the rows of segments in another order, int64 [sum(lengths)]."""
    starts = (np.cumsum(lengths) - lengths)[order]
    sizes = lengths[order]
    rows: Index = np.repeat(starts - (np.cumsum(sizes) - sizes), sizes) + np.arange(sizes.sum(), dtype=np.int64)
    return rows


UNLIMITED_STEPS = 2**31
UNLIMITED_BYTES = 2**60
"""Credit in a round, whose quota is what limits it."""


@dataclass(frozen=True, slots=True)
class ReleasedRound:
    """What a round brought.

    Attributes:
        items: one for each actor and team, in order.
        strangers: chunks of sessions that do not take part; their steps have no fate yet.
    """

    items: tuple[QueuedChunk, ...]
    strangers: tuple[QueuedChunk, ...]


class RoundQueue(TrajectoryQueue):
    """Chunks wait until `release`, whoever asks for them; the chunks that end an actor's round are noted as they come.

    Args:
        capacity_bytes: see `TrajectoryQueue`; a whole round must fit.
        memory_stride: rows between two records of memory; 0 for a policy without memory.
        to_service: see `TrajectoryQueue`.
        to_trainer: see `TrajectoryQueue`.

    Attributes:
        is_full: something of a round had no room; it would wait for ever, since the round cannot end without it.
    """

    def __init__(
        self,
        capacity_bytes: int,
        *,
        memory_stride: int = 0,
        to_service: Wakeup | None = None,
        to_trainer: threading.Event | None = None,
    ) -> None:
        super().__init__(capacity_bytes, to_service=to_service, to_trainer=to_trainer)
        self._memory_stride = memory_stride
        self._ended: dict[str, int] = {}
        self._released: list[QueuedChunk] = []
        self.is_full = False

    @property
    def credit_bytes(self) -> int:
        """No limit: an actor without credit would keep its round from ending."""
        return UNLIMITED_BYTES

    @property
    def ended(self) -> Mapping[str, int]:
        """The newest round that each session has ended."""
        return self._ended

    @property
    def has_released(self) -> bool:
        """Whether a round was released that the trainer has not taken."""
        return bool(self._released)

    def has_room(self, resident_bytes: int) -> bool:
        """Says whether a chunk may be put, and notes it if not."""
        has_room = super().has_room(resident_bytes)
        if not has_room:
            self.is_full = True
            if self._to_trainer is not None:
                self._to_trainer.set()
        return has_room

    def put(self, item: QueuedChunk) -> None:
        """Appends a chunk.

        Raises:
            QueueFullError: there is no room for it.
        """
        if item.chunk.lockstep_round:
            # Before the chunk itself: who sees the trainer's event must see this, too.
            self._ended[item.session_id] = item.chunk.lockstep_round
        super().put(item)

    def release(self, players: Collection[str]) -> ReleasedRound:
        """Hands the trainer what is here, sorted.

        Args:
            players: the sessions that took part.
        """
        items = super().get()
        for session_id in [each for each in self._ended if each not in players]:
            del self._ended[session_id]
        round_ = ReleasedRound(
            items=tuple(in_order((item for item in items if item.session_id in players), self._memory_stride)),
            strangers=tuple(item for item in items if item.session_id not in players),
        )
        self._released += round_.items
        return round_

    def get(self, timeout_seconds: float = 0.0) -> list[QueuedChunk]:
        """Takes what was released, and nothing else; never waits."""
        del timeout_seconds
        taken, self._released = self._released, []
        return taken

    def drain(self) -> list[QueuedChunk]:
        """Takes everything, released or not: nothing is trained any more."""
        return [*self.get(), *super().get()]

    def set_pace(self, pace: Pace) -> None:
        """Says what the trainer holds; rounds, and nothing else, keep actors from running ahead."""
        super().set_pace(replace(pace, ahead_limit_steps=UNLIMITED_STEPS, hold=None, until_version=0))
