"""Tests that each breach of a chunk's form is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import ColumnRole, SegmentEnd
from rollcast.errors import MalformedChunk
from rollcast.trajectories import Chunk, decode_chunk, encode_chunk
from rollcast.v1 import session_pb2, tensor_pb2, trajectory_pb2

from tests.protos.builders import CARTPOLE, EVERYTHING, decode_any, drop, full_chunk, put, small_chunk

STEP, SEGMENT, EPISODE = ColumnRole.STEP, ColumnRole.SEGMENT, ColumnRole.EPISODE
ChunkChange = Callable[[Chunk], object]
MessageChange = Callable[[trajectory_pb2.Chunk], object]


def value(name: str, number: int) -> ChunkChange:
    """Sets the first element of a column."""

    def change(chunk: Chunk) -> None:
        array = chunk.columns[name].copy()
        array.flat[0] = number
        chunk.columns[name] = array

    return change


def cast(name: str, dtype: str) -> ChunkChange:
    """Changes a column's element type."""
    return lambda chunk: chunk.columns.update({name: chunk.columns[name].astype(dtype)})


def shape(name: str) -> ChunkChange:
    """Adds a trailing axis to a column."""
    return lambda chunk: chunk.columns.update({name: chunk.columns[name][..., None]})


def shorten(name: str) -> ChunkChange:
    """Takes the last row off a column."""
    return lambda chunk: chunk.columns.update({name: chunk.columns[name][:-1]})


def role(name: str, other: ColumnRole) -> ChunkChange:
    """Calls a column something else."""
    return lambda chunk: chunk.roles.update({name: other})


def missing(name: str) -> ChunkChange:
    """Removes a column."""
    return lambda chunk: drop(chunk, name)


def added(name: str, kind: ColumnRole, dtype: str = "f4", trailing: tuple[int, ...] = (), rows: int = 5) -> ChunkChange:
    """Adds a column of zeros."""
    return lambda chunk: put(chunk, name, kind, np.zeros((rows, *trailing), dtype))


ARRAY_FAULTS: list[tuple[ChunkChange, str]] = [
    *[
        (missing(name), f"column {name} is missing")
        for name in (
            *("obs/state", "continuous_action", "discrete_action", "log_prob", "reward", "final_obs/camera", "memory"),
            *("length", "end", "env", "agent", "episode", "first_step"),
            *(f"episode/{part}" for part in ("agent", "env", "episode", "return", "length", "end")),
            *(f"stat/{part}" for part in ("key", "aggregation", "env", "value")),
        )
    ],
    (cast("obs/state", "f8"), "column obs/state: type float64, but it must be float32"),
    (cast("reward", "f2"), "column reward: type float16"),
    (cast("discrete_action", "i8"), "column discrete_action: type int64, but it must be int32"),
    (cast("length", "i4"), "column length: type int32"),
    (cast("agent", "i8"), "column agent: type int64, but it must be uint64"),
    (cast("action_mask", "?"), "column action_mask: type bool"),
    (cast("info/success", "f8"), "column info/success: type float64"),
    (cast("dist/logits", "f8"), "column dist/logits: type float64"),
    (shape("obs/state"), r"column obs/state: rows of shape \[3, 1\], but \[3\] is declared"),
    (shape("reward"), r"column reward: rows of shape \[1\], but \[\] is declared"),
    (shape("log_prob"), r"column log_prob: rows of shape \[4, 1\]"),
    (shape("info/success"), "one number per episode"),
    (lambda c: c.columns.update({"log_prob": c.columns["log_prob"][:, :3]}), r"rows of shape \[3\], but \[4\]"),
    (shorten("reward"), "column reward: 4 rows, but STEP columns of this chunk have 5"),
    (shorten("extra/contact"), "column extra/contact: 4 rows"),
    (shorten("end"), "column end: 1 rows, but SEGMENT columns of this chunk have 2"),
    (shorten("length"), "column length: 1 rows, but the chunk has 2 segments"),
    (shorten("final_obs/goal"), "column final_obs/goal: 1 rows, but FINAL"),
    (shorten("memory"), "column memory: 2 rows, but MEMORY columns of this chunk have 3"),
    (shorten("episode/return"), "column episode/return: 1 rows, but EPISODE columns of this chunk have 2"),
    (shorten("stat/value"), "column stat/value: 2 rows, but STAT columns of this chunk have 3"),
    (role("reward", SEGMENT), "column reward: role SEGMENT, but it must be STEP"),
    (role("length", STEP), "column length: role STEP"),
    (role("dist/logits", SEGMENT), "column dist/logits: role SEGMENT, but it must be STEP"),
    (role("info/success", STEP), "column info/success: role STEP, but it must be EPISODE"),
    (role("reward", ColumnRole.UNSPECIFIED), "column reward: role 0 is unknown"),
    (added("rewards", STEP), "column rewards is unknown to this behavior"),
    (added("obs/pose", STEP), "column obs/pose is unknown"),
    (added("other/thing", STEP), "put your own columns under extra/"),
    (added("extra/a/b", STEP), "does not match"),
    (added("extra/ü", STEP), "does not match"),
    (added("x" * 65, STEP), "does not match"),
    (value("length", 0), "a segment has no rows"),
    (value("length", 4), "the lengths add up to 6, but the chunk has 5 rows"),
    (value("length", 2**32 - 1), "add up to 4294967297"),
    (value("end", 0), "column end: 0 is out of range; 1 to 3"),
    (value("end", 4), "column end: 4 is out of range"),
    (value("group_end", 4), "column group_end: 4"),
    (
        lambda c: c.columns.update(group_step=np.array([0, 1, 2, 3, 3], np.int32)),
        "column group_step: 3 after 3 in row 4; it must grow within a segment",
    ),
    (value("purpose", 4), "column purpose: 4"),
    (value("action_source", 5), "column action_source: 5"),
    (value("action_mask", 2), "column action_mask: 2"),
    (value("final_action_mask", 255), "column final_action_mask: 255"),
    (value("episode/end", 0), "column episode/end: 0"),
    (value("episode/end", SegmentEnd.CUT), "column episode/end: 1 is out of range; 2 to 3"),
    (value("episode/purpose", 9), "column episode/purpose: 9"),
    (value("episode/opponent", 1), "column episode/opponent: 1 is out of range; -1 to 0"),
    (value("episode/opponent", -2), "column episode/opponent: -2"),
    (value("episode/role", 3), "column episode/role: 3 is out of range; 0 to 2"),
    (value("episode/result", 2), "column episode/result: 2 is out of range; -1, 0, 1 and 127 are allowed"),
    (value("episode/result", -128), "column episode/result: -128 is out of range"),
    (value("episode/group_end", 4), "column episode/group_end: 4"),
    (value("stat/key", 2), "column stat/key: 2 is out of range; 0 to 1"),
    (value("stat/aggregation", 5), "column stat/aggregation: 5"),
    (lambda c: setattr(c, "stat_keys", ()), "column stat/key: 1 is out of range; 0 to -1"),
    (lambda c: setattr(c, "sequence", 0), "sequence is 0"),
    (lambda c: setattr(c, "segments", 6), "6 segments in 5 rows"),
    (lambda c: setattr(c, "segments", 0), "5 rows without a segment"),
    (lambda c: setattr(c, "lockstep_round", 3), "5 rows in the chunk that ends round 3"),
    (lambda c: setattr(c, "rows", 6), "but the chunk has 6 rows"),
    (lambda c: setattr(c, "episodes", 3), "2 rows, but EPISODE columns of this chunk have 3"),
    (lambda c: setattr(c, "episodes", 0), "2 rows, but EPISODE columns of this chunk have 0"),
    (lambda c: setattr(c, "stat_keys", ("a",) * 1025), "1025 statistics keys; at most 1024"),
    (lambda c: setattr(c, "stat_keys", ("a", "")), "1 to 256 printable characters"),
    (lambda c: setattr(c, "stat_keys", ("a", "x" * 257)), "1 to 256 printable characters"),
    (lambda c: setattr(c, "stat_keys", ("a", "b\n")), "1 to 256 printable characters"),
    (lambda c: setattr(c, "opponents", ("a",) * 257), "257 opponents; at most 256"),
    (lambda c: setattr(c, "opponents", ("",)), "is not the name of a behavior"),
    (lambda c: setattr(c, "discarded", {f"r{n}": 1 for n in range(65)}), "65 discard reasons; at most 64"),
    (lambda c: setattr(c, "discarded", {"Reset!": 1}), "'Reset!' is not a lower-case word"),
    (lambda c: [added(f"extra/c{n}", STEP)(c) for n in range(250)], "columns; at most 256"),
]


@pytest.mark.parametrize(("change", "message"), ARRAY_FAULTS, ids=[message for _, message in ARRAY_FAULTS])
def test_a_breach_of_form_is_refused(change: ChunkChange, message: str) -> None:
    """A chunk with one fault is refused with column, value and limit."""
    chunk = full_chunk()
    change(chunk)
    with pytest.raises(MalformedChunk, match=message):
        decode_any_with_memory(chunk)


def decode_any_with_memory(chunk: Chunk) -> Chunk:
    """Decodes as a learner whose policy has memory."""
    return decode_chunk(encode_chunk(chunk), EVERYTHING, max_bytes=1 << 20, memory_size=4, memory_stride=2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (added("continuous_action", STEP, trailing=(1,)), "column continuous_action is unknown"),
        (added("prev_continuous_action", SEGMENT, trailing=(1,), rows=2), "prev_continuous_action is unknown"),
        (added("memory", ColumnRole.MEMORY, trailing=(4,), rows=3), "column memory is unknown"),
        (
            added("extra/thing", ColumnRole.MEMORY),
            "column extra/thing: 5 rows, but MEMORY columns of this chunk have 0",
        ),
    ],
)
def test_parts_that_the_behavior_lacks_are_refused(change: ChunkChange, message: str) -> None:
    """A behavior without continuous actions or memory refuses these columns."""
    chunk = small_chunk(CARTPOLE)
    change(chunk)
    with pytest.raises(MalformedChunk, match=message):
        decode_chunk(encode_chunk(chunk), CARTPOLE, max_bytes=1 << 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: m.columns.append(m.columns[0]), "column obs/state appears twice"),
        (lambda m: setattr(m.columns[0], "role", 99), "column obs/state: role 99 is unknown"),
        (lambda m: setattr(m.columns[0], "name", ""), "does not match"),
        (lambda m: m.columns[0].ClearField("tensor"), "column obs/state: element type 0"),
        (lambda m: setattr(m.columns[0].tensor, "data", b"x"), "column obs/state: 1 bytes of data"),
        (lambda m: setattr(m.columns[0].tensor, "dtype", 8), "column obs/state: element type 8"),
        (
            lambda m: m.columns[0].tensor.CopyFrom(
                tensor_pb2.Tensor(
                    dtype=tensor_pb2.DTYPE_FLOAT32, encoding=tensor_pb2.ENCODING_RAW, shape=[], data=bytes(4)
                )
            ),
            "column obs/state: a scalar has no row axis",
        ),
        (
            lambda m: m.discarded.extend([session_pb2.ReasonCount(reason="reset", steps=1)] * 2),
            "'reset' is not a lower-case word, or appears twice",
        ),
        (lambda m: m.discarded.add(reason="x\n"), "is not a lower-case word"),
    ],
)
def test_messages_that_no_array_can_make_are_refused(change: MessageChange, message: str) -> None:
    """Repeated names, unknown numbers and wrong lengths are refused."""
    sent = encode_chunk(small_chunk())
    change(sent)
    with pytest.raises(MalformedChunk, match=message):
        decode_any(sent, CARTPOLE)


RECORD: dict[str, Any] = {"match": 1, "game": "hex", "first_team": 0, "result": 1, "moves": "a1\nb2"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"match": 0}, "the game record names no match"),
        ({"game": ""}, "game '' does not match"),
        ({"game": "hex\n"}, "does not match"),
        ({"game": "../../etc/passwd"}, "does not match"),
        ({"game": "go(" + "x" * 65 + ")"}, "does not match"),
        ({"result": 2}, "result 2 is unknown; -1, 0, 1 and 127 are allowed"),
        ({"moves": "a1\n" * 6000}, "18000 characters; at most 16384"),
        ({"moves": "a\n" * 2048 + "a"}, "2049 moves; at most 2048"),
        ({"moves": "a1\n"}, "move '' does not match"),
        ({"moves": "a1\r\nb2"}, "does not match"),
        ({"moves": " a1"}, "does not match"),
        ({"moves": "a\x1b[2J"}, "does not match"),
        ({"moves": "歩"}, "does not match"),
        ({"moves": "x" * 33}, "does not match"),
    ],
    ids=str,
)
def test_a_game_record_is_bounded_text(changes: dict[str, Any], message: str) -> None:
    """Names, results, lengths and characters of a game record are checked; a game without moves is legal."""
    sent = encode_chunk(small_chunk())
    sent.game_record.CopyFrom(trajectory_pb2.GameRecord(**{**RECORD, **changes}))
    with pytest.raises(MalformedChunk, match=message):
        decode_any(sent, CARTPOLE)
    sent.game_record.CopyFrom(trajectory_pb2.GameRecord(**{**RECORD, "moves": "", "first_team": -7}))
    record = decode_any(sent, CARTPOLE).game_record
    assert record == GameRecord(1, "hex", -7, GameResult.WON, ())


def test_the_size_limit_counts_all_columns_together() -> None:
    """The size limit applies to the sum of all columns, compressed or not."""
    chunk = small_chunk(EVERYTHING, lengths=(50,))
    total_bytes = sum(array.nbytes for array in chunk.columns.values())
    for packed in (frozenset[str](), frozenset(chunk.columns)):
        message = encode_chunk(chunk, compress=packed)
        assert decode_any(message, EVERYTHING, max_bytes=total_bytes).rows == 50
        with pytest.raises(MalformedChunk, match="bytes; at most"):
            decode_any(message, EVERYTHING, max_bytes=total_bytes - 1)
