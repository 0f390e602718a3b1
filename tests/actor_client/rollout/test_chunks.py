"""Tests that chunks stay within every limit."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import encode_chunk

from actor_client.policy.actions import Actions
from actor_client.rollout.chunks import ChunkBuilder, split
from actor_client.rollout.vector.episodes import join_episodes
from actor_client.rollout.vector.rows import RowLog
from actor_client.rollout.vector.segments import EndedEpisodes, Running, join_segments
from tests.actor_client.rollout.harness import limits

NAME = "n" * 60
SPEC = BehaviorSpec(
    name="Many",
    observations=tuple(ObservationSpec(f"{NAME}{i}", np.dtype(np.float32), (3,)) for i in range(12)),
    action=ActionSpec(continuous_size=2, discrete_branches=(2,)),
)


@pytest.mark.parametrize(
    ("largest", "infos", "most"), [(12_000, 0, 0), (20_000, 40, 0), (70_000, 40, 0), (70_000, 0, 9)]
)
def test_no_chunk_exceeds_the_largest_size(largest: int, infos: int, most: int) -> None:
    """Many segments and episodes are spread over chunks, everything arrives once, and no record before its rows."""
    agents, steps = 40, 6
    log = RowLog(SPEC, agents, steps, masked=True)
    running = Running(agents)
    running.begin(0, range(agents), 0)
    blocks = []
    for step in range(steps):
        log.append(
            step,
            observations=[np.full((agents, 3), step, np.float32)] * 12,
            masks=None,
            actions=Actions(
                np.zeros((agents, 2), np.float32),
                np.zeros((agents, 1), np.int32),
                np.zeros((agents, 3), np.float32),
                None,
            ),
            rewards=np.ones(agents, np.float32),
            version=step,
            taken_at=float(step),
        )
        blocks += [
            running.finish(
                np.array([env]),
                step + 1,
                ends=np.array([2], np.uint8),
                finals=[np.zeros((1, 3), np.float32)] * 12,
                final_masks=np.ones((1, 2), np.uint8),
                rewards=np.ones(agents, np.float32),
                version=step,
                infos=[{f"{NAME}{i}": float(i) for i in range(infos)}],
            )
            for env in np.arange(step % 2, agents, 2)
        ]
    builder = ChunkBuilder(
        SPEC,
        limits(largest=largest, steps=most),
        agents=agents,
        behavior_index=0,
        team=0,
        row_bytes=log.row_bytes,
        masked=True,
    )
    segments, episodes = join_segments(blocks), join_episodes(blocks, running.seeds)
    assert episodes is not None
    chunks = list(builder.build(log, segments, episodes, generation=1, now=9.0))

    assert all(encode_chunk(chunk).ByteSize() <= largest for chunk in chunks)
    rows, records = (np.cumsum(each) for each in zip(*((chunk.rows, chunk.episodes) for chunk in chunks), strict=True))
    assert (records <= rows).all(), "the learner counts no more episodes than it has received rows"
    assert sum(chunk.rows for chunk in chunks) == int(segments.lengths.sum())
    assert sum(chunk.segments for chunk in chunks) == len(blocks)
    assert sum(chunk.episodes for chunk in chunks) == len(blocks)
    envs = np.concatenate([chunk.columns["episode/env"] for chunk in chunks if chunk.episodes])
    np.testing.assert_array_equal(envs, episodes.envs)


def test_numbers_of_episodes_that_differ_are_filled_with_nan() -> None:
    """A missing info becomes NaN, and too many names are cut to the limit of a chunk."""
    running = Running(2)
    running.begin(0, [1, 2], 0)
    envs = np.arange(2)
    block = running.finish(
        envs,
        1,
        ends=np.full(2, 2, np.uint8),
        finals=[],
        final_masks=None,
        rewards=np.ones(2, np.float32),
        version=0,
        infos=[{"a": 1.0}, {"b": 2.0} | {f"z{i}": 0.0 for i in range(100)}],
    )
    assert isinstance(block.episodes, EndedEpisodes)
    records = join_episodes([block], running.seeds)
    assert records is not None
    columns = records.columns()

    np.testing.assert_array_equal(columns["info/a"], [1.0, np.nan])
    np.testing.assert_array_equal(columns["info/b"], [np.nan, 2.0])
    assert sum(name.startswith("info/") for name in columns) == 64


def test_splitting_is_greedy_and_in_order() -> None:
    """Slices are as long as what fits; a segment that is too long is its own slice."""
    assert split([], lambda rows, segments: rows + segments <= 10) == []
    assert split([4, 4, 4], lambda rows, segments: rows + segments <= 10) == [slice(0, 2), slice(2, 3)]
    assert split([50, 1, 1], lambda rows, _: rows <= 10) == [slice(0, 1), slice(1, 3)]


def test_bundles_are_parted_only_if_they_must_be() -> None:
    """A bundle is divided only if it does not fit a slice."""
    by_rows = partial(split, fits=lambda rows, _: rows <= 10)
    assert by_rows([4, 4, 4], bundles=[1, 2]) == [slice(0, 1), slice(1, 3)]
    assert by_rows([4, 4, 4]) == [slice(0, 2), slice(2, 3)]
    assert by_rows([4, 6, 6, 2], bundles=[1, 3]) == [slice(0, 2), slice(2, 4)]
    assert by_rows([9, 1, 9, 1], bundles=[2, 2]) == [slice(0, 2), slice(2, 4)]
