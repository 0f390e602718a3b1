"""Tests which rank trains a segment, and that the parts of a chunk are the chunk."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import ColumnRole

from learner.link.split import Splitter, ranks_of
from learner.link.to_trainers import Experience
from tests.learner.link.test_messages import declared

STEPS = [3, 1, 4, 2]


def chunk() -> Chunk:
    """Returns four segments of two environments with two agents each, and an episode."""
    rows = sum(STEPS)
    columns: dict[str, tuple[NDArray[Any], ColumnRole]] = {
        "length": (np.array(STEPS, np.uint32), ColumnRole.SEGMENT),
        "env": (np.array([0, 0, 1, 1], np.uint32), ColumnRole.SEGMENT),
        "agent": (np.array([0, 1, 0, 1], np.uint64), ColumnRole.SEGMENT),
        "group": (np.array([7, 7, 8, 0], np.uint64), ColumnRole.SEGMENT),
        "reward": (np.arange(1, rows + 1, dtype=np.float32), ColumnRole.STEP),
        "version_offset": (np.arange(rows, dtype=np.uint32), ColumnRole.STEP),
        "obs/x": (np.arange(1.0, 2 * rows + 1).reshape(rows, 2), ColumnRole.STEP),
        "final_obs/x": (np.arange(1.0, 9.0).reshape(4, 2), ColumnRole.FINAL),
        "memory": (np.arange(1.0, 7.0).reshape(6, 1), ColumnRole.MEMORY),
        "episode/return": (np.ones(1, np.float32), ColumnRole.EPISODE),
    }
    return Chunk(
        segments=4,
        rows=rows,
        episodes=1,
        columns={name: column for name, (column, _) in columns.items()},
        roles={name: role for name, (_, role) in columns.items()},
    )


@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_the_parts_add_up_to_the_chunk(ranks: int) -> None:
    """Each value of a step goes to one rank, the table of segments to all, and records to rank 0."""
    splitter = Splitter(ranks)
    splitter.note(replace(declared(), index=0, memory_stride=2))
    item = Experience(0, 1, chunk(), "session", 1, 1, 0.0)
    parts = [splitter.part_of(item, rank) for rank in range(ranks)]
    assert sum(len(part.chunk.columns["reward"]) for part in parts) == item.chunk.rows
    assert [part.chunk.episodes for part in parts] == [1] + [0] * (ranks - 1)
    assert all("episode/return" not in part.chunk.columns for part in parts[1:])
    assert all(part.chunk.roles.keys() == part.chunk.columns.keys() for part in parts)
    wholes = [splitter.whole(part, rank).chunk.columns for rank, part in enumerate(parts)]
    for name in ("reward", "obs/x", "final_obs/x", "memory"):
        assert np.array_equal(sum(columns[name] for columns in wholes), item.chunk.columns[name])
    for name in ("length", "env", "version_offset"):
        assert all(np.array_equal(columns[name], item.chunk.columns[name]) for columns in wholes)


def test_a_chunk_without_segments_passes() -> None:
    """A chunk can have records alone."""
    splitter = Splitter(2)
    splitter.note(replace(declared(), index=0))
    item = Experience(0, 1, Chunk(episodes=1, columns={"episode/return": np.ones(1)}), "session", 1, 1, 0.0)
    assert splitter.whole(splitter.part_of(item, 0), 0).chunk.episodes == 1


def chunk_of(places: list[tuple[int, int]]) -> Chunk:
    """Returns segments of agents, each with its environment and number."""
    environments, agents = zip(*places, strict=True)
    columns: dict[str, NDArray[Any]] = {"env": np.array(environments, np.uint32), "agent": np.array(agents, np.uint64)}
    return Chunk(segments=len(places), columns=columns)


def test_agents_spread_and_groups_stay_together() -> None:
    """An agent is always of one rank, agents and actors differ, and mates belong together if that matters."""
    vector, several, plain = (
        [(i, i) for i in range(4)],
        [(e, e << 32 | k) for e in (0, 1) for k in (3, 4)],
        [(0, 0), (1, 0)],
    )
    assert ranks_of(chunk_of(vector), 0, 2, grouped=False).tolist() == [0, 1, 0, 1]
    assert ranks_of(chunk_of(vector), 1, 2, grouped=False).tolist() == [1, 0, 1, 0]
    assert ranks_of(chunk_of(several), 0, 2, grouped=False).tolist() == [1, 0, 0, 1]
    assert ranks_of(chunk_of(plain), 0, 2, grouped=False).tolist() == [0, 1]
    found = ranks_of(chunk(), 0, 3, grouped=True)
    assert found[0] == found[1] != found[2]
