"""Tests messages frozen as bytes when version 1 was frozen.

Each `golden/NAME.txtpb` is for people (and for writers of actors in other languages), `NAME.binpb` is the same message as
it crosses the wire. These files are never regenerated; a change that breaks one breaks actors in the field.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import message_factory, text_format
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.rpc import status_pb2
from grpc_status import rpc_status
from rollcast import errors
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, ColumnRole, Distribution, SegmentEnd, Squash, StatAggregation
from rollcast.policies import PolicyAssembler, PolicyDescription, describe_payload, frames
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.trajectories import Chunk, decode_chunk, encode_chunk
from rollcast.transforms import ActionTransform
from rollcast.v1 import policy_pb2, spec_pb2, trajectory_pb2

from tests.protos.builders import CAMERA, CARTPOLE

GOLDEN = Path(__file__).with_name("golden")
NAMES = sorted(path.stem for path in GOLDEN.glob("*.binpb"))


def wire(name: str) -> bytes:
    """Returns the frozen bytes."""
    return (GOLDEN / f"{name}.binpb").read_bytes()


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_text_say_the_same(name: str) -> None:
    """The bytes decode to the text, and the text encodes to the bytes."""
    text = (GOLDEN / f"{name}.txtpb").read_text(encoding="utf-8")
    found = re.search(r"^# proto-message: (\S+)$", text, re.MULTILINE)
    assert found
    kind: type[Message] = message_factory.GetMessageClass(Default().FindMessageTypeByName(found.group(1)))  # type: ignore[no-untyped-call]
    written = text_format.Parse(text, kind())
    assert wire(name) == written.SerializeToString(deterministic=True)
    assert kind.FromString(wire(name)) == written


STEP, SEGMENT, FINAL = ColumnRole.STEP, ColumnRole.SEGMENT, ColumnRole.FINAL
EPISODE, STAT = ColumnRole.EPISODE, ColumnRole.STAT
COLUMNS: dict[str, tuple[ColumnRole, str, Any]] = {
    "obs/state": (STEP, "f4", [[0, 1, -1, 0.5], [0.25, 1.5, -2, 0.125], [8, -0.0, 3.5, -4]]),
    "discrete_action": (STEP, "i4", [[0], [1], [1]]),
    "log_prob": (STEP, "f4", [[-0.5], [-0.75], [-1]]),
    "reward": (STEP, "f4", [1, 1, 1]),
    "version_offset": (STEP, "u4", [0, 1, 0]),
    "length": (SEGMENT, "u4", [2, 1]),
    "end": (SEGMENT, "u1", [SegmentEnd.CUT, SegmentEnd.TERMINATED]),
    "env": (SEGMENT, "u4", [0, 1]),
    "agent": (SEGMENT, "u8", [0, 2**40]),
    "episode": (SEGMENT, "u8", [5, 6]),
    "first_step": (SEGMENT, "u4", [30, 199]),
    "final_obs/state": (FINAL, "f4", [[1, 2, 3, 4], [5, 6, 7, 8]]),
    "episode/agent": (EPISODE, "u8", [2**40]),
    "episode/env": (EPISODE, "u4", [1]),
    "episode/episode": (EPISODE, "u8", [6]),
    "episode/return": (EPISODE, "f4", [200]),
    "episode/length": (EPISODE, "u4", [200]),
    "episode/end": (EPISODE, "u1", [SegmentEnd.TERMINATED]),
    "stat/key": (STAT, "u4", [0]),
    "stat/aggregation": (STAT, "u1", [StatAggregation.AVERAGE]),
    "stat/env": (STAT, "u4", [1]),
    "stat/value": (STAT, "f4", [0.5]),
}


def test_chunk() -> None:
    """Every counter, column, role and value is equal, and encoding gives the same bytes."""
    expected = Chunk(
        sequence=119,
        generation=3,
        base_version=12,
        produced_steps=4099,
        discarded={"env_error": 17},
        age_seconds=0.02,
        segments=2,
        rows=3,
        episodes=1,
        agents=16,
        columns={name: np.asarray(values, dtype) for name, (_, dtype, values) in COLUMNS.items()},
        roles={name: role for name, (role, _, _) in COLUMNS.items()},
        stat_keys=("Environment/Height",),
    )
    assert wire("chunk") == encode_chunk(expected).SerializeToString(deterministic=True)
    actual = decode_chunk(trajectory_pb2.Chunk.FromString(wire("chunk")), CARTPOLE, max_bytes=1 << 20)
    assert list(COLUMNS) == list(actual.columns)
    for name, array in expected.columns.items():
        np.testing.assert_array_equal(array, actual.columns[name], strict=True)
    for name in ("sequence", "generation", "behavior_index", "team", "base_version", "produced_steps", "discarded",
                 "ghost_steps", "segments", "rows", "episodes", "agents", "roles", "stat_keys", "opponents"):  # fmt: skip
        assert getattr(expected, name) == getattr(actual, name), name
    assert expected.age_seconds == pytest.approx(actual.age_seconds)


def test_behavior_spec() -> None:
    """Observations and actions of the behavior are equal."""
    expected = BehaviorSpec(
        "Crawler",
        (
            ObservationSpec("state", np.dtype(np.float32), (3,)),
            CAMERA,
        ),
        ActionSpec(2, (2, 3), (-1.0, 0.0), (1.0, 0.5), ("left", "right", "jump", "look")),
        grouped=True,
    )
    assert expected == BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(wire("behavior_spec")))
    assert wire("behavior_spec") == expected.to_message().SerializeToString(deterministic=True)


def test_policy_header() -> None:
    """The header describes its payload, and the assembler accepts it."""
    payload = b"not an ONNX file, but bytes"
    expected = describe_payload(
        PolicyDescription(
            behavior_index=1,
            behavior="Crawler",
            generation=3,
            version=12,
            optimizer_steps=360,
            env_steps_trained=24576,
            architecture_hash=bytes(range(32)),
            inputs=("obs_0", "obs_1", "action_masks"),
            outputs=("mean", "log_std", "logits"),
            continuous_distribution=Distribution.GAUSSIAN_CLIP3,
            discrete_distribution=Distribution.CATEGORICAL,
            action_transform=ActionTransform(Squash.CLIP3_DIV3, (-1, 0), (1, 0.5)),
        ),
        payload,
    )
    assembler = PolicyAssembler()
    assembler.begin(policy_pb2.PolicyHeader.FromString(wire("policy_header")))
    assert assembler.add(frames(payload)[0]) == (expected, payload)
    assert wire("policy_header") == expected.to_message().SerializeToString(deterministic=True)


def test_match_record() -> None:
    """An opponent sends the record of its game, and no rows."""
    chunk = decode_chunk(trajectory_pb2.Chunk.FromString(wire("match_record")), CARTPOLE, max_bytes=1 << 10)
    assert (chunk.rows, chunk.ghost_steps, chunk.team, chunk.opponents) == (0, 57, 1, ("Tennis?team=0",))
    told = {name.removeprefix("episode/"): column.tolist() for name, column in chunk.columns.items()}
    assert (told["match"], told["role"], told["result"]) == ([21], [AssignmentRole.OPPONENT], [GameResult.LOST])
    assert (told["opponent"], told["opponent_generation"], told["opponent_version"]) == ([0], [3], [40])
    assert wire("match_record") == encode_chunk(chunk).SerializeToString(deterministic=True)


def test_game_record() -> None:
    """The moves of a game, with the team that moved first and its result."""
    chunk = decode_chunk(trajectory_pb2.Chunk.FromString(wire("game_record")), CARTPOLE, max_bytes=1 << 10)
    expected = GameRecord(21, "shogi", 1, GameResult.DRAWN, ("7g7f", "3c3d", "8h2b+", "3a2b", "B*4e"))
    assert chunk.game_record == expected
    assert wire("game_record") == encode_chunk(chunk).SerializeToString(deterministic=True)


def test_status_of_a_refused_declaration() -> None:
    """The trailer of an error is written and read."""
    error = errors.SpecMismatch(
        "obs/state: run float32[64], actor float32[48]", metadata={"obs/state": "run float32[64], actor float32[48]"}
    )
    status: Any = errors.to_status(error)
    assert wire("spec_mismatch") == dict(status.trailing_metadata)[errors.DETAILS_KEY]
    frozen: Any = rpc_status.to_status(  # type: ignore[no-untyped-call]
        status_pb2.Status.FromString(wire("spec_mismatch"))
    )
    received = errors.from_rpc_error(
        grpc.aio.AioRpcError(
            frozen.code,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(*frozen.trailing_metadata),
            details=frozen.details,
        )
    )
    assert type(received) is errors.SpecMismatch
    assert received.metadata == error.metadata
