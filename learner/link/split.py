"""Splits experience over the ranks of the trainers: which rank trains a segment, and what each rank receives.

Every rank gets the table of all segments, so that all ranks take and drop the same segments without asking each other.
The data of a segment's rows goes to the rank that trains it, and records of episodes go to rank 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole

from learner.link.to_trainers import Declared, Experience


def ranks_of(chunk: Chunk, actor_index: int, ranks: int, *, grouped: bool) -> NDArray[np.int64]:
    """Returns the rank that trains each segment of a chunk, ``[S]``: always the same for an agent.

    Args:
        chunk: The chunk.
        actor_index: The sender's place in the run.
        ranks: Number of ranks.
        grouped: Whether all agents of a group belong to one rank.
    """
    nothing = np.zeros(chunk.segments, np.int64)
    environments, agents = (chunk.columns.get(name, nothing).astype(np.int64) for name in ("env", "agent"))
    ordinals = _ordinals(environments, agents)
    groups = chunk.columns.get("group")
    if grouped and groups is not None:
        ordinals = np.where(groups == 0, ordinals, _ordinals(environments, groups.astype(np.int64)))
    found: NDArray[np.int64] = (actor_index + ordinals) % ranks
    return found


def _ordinals(environments: NDArray[np.int64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns numbers, ``[S]``, of which those of an actor's agents (or groups) follow each other.

    Agents are numbered as their environments where each has one, else by environment (upper half) and within it.
    """
    within = numbers & _WITHIN
    ordinals: NDArray[np.int64] = np.where(numbers == environments, within, environments + within)
    return ordinals


_WITHIN: Final = 2**32 - 1
_TABLE: Final = ("version_offset", "group_step")
"""Columns of steps that belong to the table of segments."""
_RECORDS: Final = (ColumnRole.EPISODE, ColumnRole.STAT)


class Splitter:
    """Takes the parts of the ranks out of experience, and makes chunks of full size of them again.

    Both ends of a link use one, and tell it of each declared behavior first.

    Args:
        ranks: Number of ranks.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._behaviors: dict[int, Declared] = {}

    def note(self, declared: Declared) -> None:
        """Notes a behavior."""
        self._behaviors[declared.index] = declared

    def part_of(self, item: Experience, rank: int) -> Experience:
        """Returns what a rank receives of a chunk: of columns of steps, only the rows of its own segments."""
        chunk = item.chunk
        masks = self._masks(item, rank)
        columns = {}
        for name, column in chunk.columns.items():
            role = chunk.roles.get(name)
            if role in _RECORDS and rank:
                continue
            columns[name] = column[masks[role]] if role in masks and name not in _TABLE else column
        roles = {name: role for name, role in chunk.roles.items() if name in columns}
        episodes = 0 if rank else chunk.episodes
        return replace(item, chunk=replace(chunk, columns=columns, roles=roles, episodes=episodes))

    def whole(self, item: Experience, rank: int) -> Experience:
        """Returns a part as a chunk of full size, with zeros in the place of what other ranks have."""
        chunk = item.chunk
        masks = self._masks(item, rank)
        columns = dict(chunk.columns)
        for name, part in chunk.columns.items():
            role = chunk.roles.get(name)
            if role in masks and name not in _TABLE:
                mask = masks[role]
                columns[name] = np.zeros((len(mask), *part.shape[1:]), part.dtype)
                columns[name][mask] = part
        return replace(item, chunk=replace(chunk, columns=columns))

    def _masks(self, item: Experience, rank: int) -> Mapping[ColumnRole | None, NDArray[np.bool_]]:
        """Returns by role of a column which of its rows belong to a rank; empty for a chunk without segments."""
        chunk, declared = item.chunk, self._behaviors[item.behavior]
        if not chunk.segments:
            return {}
        grouped = declared.settings.traits.grouped
        own = ranks_of(chunk, item.actor_index, self._ranks, grouped=grouped) == rank
        lengths = chunk.columns["length"].astype(np.int64)
        masks: dict[ColumnRole | None, NDArray[np.bool_]] = {
            ColumnRole.STEP: np.repeat(own, lengths),
            ColumnRole.FINAL: own,
        }
        if declared.memory_stride:
            masks[ColumnRole.MEMORY] = np.repeat(own, -(-lengths // declared.memory_stride))
        return masks
