"""Tests that chunks survive the wire."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import ActionSource, ColumnRole, Encoding, GroupEnd, Purpose, StatAggregation
from rollcast.limits import MAX_DECODED_CHUNK_BYTES
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk, decode_chunk, encode_chunk
from rollcast.v1 import trajectory_pb2

from tests.protos.builders import CARTPOLE, EVERYTHING, decode_any, drop, full_chunk, put, small_chunk

SCALARS = (
    "sequence", "generation", "behavior_index", "team", "base_version", "produced_steps", "discarded", "ghost_steps",
    "segments", "rows", "episodes", "agents", "roles", "stat_keys", "opponents", "game_record", "lockstep_round",
)  # fmt: skip


def check_equal(expected: Chunk, actual: Chunk) -> None:
    """Compares every field; NaN equals NaN."""
    for name in SCALARS:
        assert getattr(expected, name) == getattr(actual, name), name
    assert expected.age_seconds == pytest.approx(actual.age_seconds, abs=1e-6)
    assert list(expected.columns) == list(actual.columns)
    for name, array in expected.columns.items():
        assert array.dtype == actual.columns[name].dtype, name
        np.testing.assert_array_equal(array, actual.columns[name], err_msg=name)


@settings(deadline=None, max_examples=60)
@given(
    spec=st.sampled_from([CARTPOLE, EVERYTHING]),
    full=st.booleans(),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6).map(tuple),
    seed=st.integers(0, 2**32 - 1),
    team=st.integers(-(2**31), 2**31 - 1),
    compress=st.booleans(),
)
def test_round_trip(
    *, spec: BehaviorSpec, full: bool, lengths: tuple[int, ...], seed: int, team: int, compress: bool
) -> None:
    """Counters, names, roles and arrays survive a round trip as bytes."""
    chunk = full_chunk(spec, lengths, seed) if full else small_chunk(spec, lengths, seed)
    chunk.team = team
    names = frozenset(chunk.columns) if compress else frozenset[str]()
    sent = encode_chunk(chunk, compress=names).SerializeToString()
    check_equal(chunk, decode_any(trajectory_pb2.Chunk.FromString(sent), spec))


def test_a_chunk_without_segments_is_legal() -> None:
    """A chunk without segments may have counters, episodes and statistics, or end a round."""
    bare = Chunk(sequence=1, produced_steps=5, lockstep_round=7)
    check_equal(bare, decode_any(encode_chunk(bare), CARTPOLE))
    full = full_chunk()
    kept = {name: array for name, array in full.columns.items() if full.roles[name] >= ColumnRole.EPISODE}
    records = Chunk(
        sequence=2,
        episodes=full.episodes,
        columns=kept,
        roles={name: full.roles[name] for name in kept},
        stat_keys=full.stat_keys,
        opponents=full.opponents,
    )
    check_equal(records, decode_any(encode_chunk(records), EVERYTHING))


def test_columns_of_no_rows_are_legal() -> None:
    """Columns without rows are accepted."""
    chunk = small_chunk()
    chunk.rows = chunk.segments = 0
    chunk.columns = {name: array[:0] for name, array in chunk.columns.items()}
    assert decode_any(encode_chunk(chunk), CARTPOLE).rows == 0


@pytest.mark.parametrize("purpose", [Purpose.EVALUATE, Purpose.DEMO])
def test_log_prob_is_needed_for_training_only(purpose: Purpose) -> None:
    """Demonstrations and evaluations need no log-probabilities."""
    chunk = small_chunk()
    drop(chunk, "log_prob")
    put(chunk, "purpose", ColumnRole.SEGMENT, np.full(chunk.segments, purpose, np.uint8))
    assert "log_prob" not in decode_any(encode_chunk(chunk), CARTPOLE).columns


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("purpose", Purpose.TRAIN),
        ("group_end", GroupEnd.CONTINUES),
        ("action_source", ActionSource.POLICY),
        ("episode/purpose", Purpose.TRAIN),
        ("stat/aggregation", StatAggregation.AVERAGE),
    ],
)
def test_unspecified_enum_values_become_what_they_stand_for(name: str, default: int) -> None:
    """Unspecified enum values become their defaults."""
    chunk = full_chunk()
    values = chunk.columns[name].copy()
    values[:] = 2
    values[0] = 0
    chunk.columns[name] = values
    expected = values.copy()
    expected[0] = default
    np.testing.assert_array_equal(expected, decode_any(encode_chunk(chunk), EVERYTHING).columns[name])


def test_only_named_columns_are_compressed() -> None:
    """Only named columns are compressed."""
    chunk = small_chunk(EVERYTHING, lengths=(64,))
    chunk.columns["obs/camera"] = np.zeros_like(chunk.columns["obs/camera"])
    message = encode_chunk(chunk, compress=frozenset({"obs/camera"}))
    packed = [column.name for column in message.columns if column.tensor.encoding == Encoding.ZSTD.value]
    assert packed == ["obs/camera"]
    check_equal(chunk, decode_any(message, EVERYTHING))


def test_memory_columns_count_started_blocks() -> None:
    """Segments of 5 and 4 rows with stride 2 have 3 + 2 memories."""
    chunk = small_chunk(CARTPOLE, (5, 4))
    put(chunk, "memory", ColumnRole.MEMORY, np.zeros((5, 8), np.float32))
    put(chunk, "extra/attention", ColumnRole.MEMORY, np.zeros(5, np.float32))
    decoded = decode_chunk(
        encode_chunk(chunk), CARTPOLE, max_bytes=MAX_DECODED_CHUNK_BYTES, memory_size=8, memory_stride=2
    )
    assert decoded.columns["memory"].shape == (5, 8)
