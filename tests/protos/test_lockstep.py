"""Tests the end of a lock-step round on the wire."""

from __future__ import annotations

from rollcast.chunks import Chunk
from rollcast.trajectories import encode_chunk
from rollcast.v1 import policy_pb2, trajectory_pb2

from tests.protos.builders import CARTPOLE, decode_any, small_chunk


def test_a_chunk_without_rows_ends_a_round() -> None:
    """A chunk without rows has the number of the round it ends."""
    message = encode_chunk(Chunk(sequence=4, generation=2, lockstep_round=7))
    arrived = decode_any(trajectory_pb2.Chunk.FromString(message.SerializeToString()), CARTPOLE)
    assert (arrived.lockstep_round, arrived.rows, arrived.segments) == (7, 0, 0)
    assert decode_any(encode_chunk(small_chunk()), CARTPOLE).lockstep_round == 0


def test_free_runs_say_nothing_of_rounds() -> None:
    """An assignment without lock-step has a quota of 0."""
    assignment = policy_pb2.Assignment(id=3)
    assert (assignment.lockstep_quota_steps, assignment.lockstep_round) == (0, 0)
    assert assignment.SerializeToString() == b"\x08\x03"
