"""Tests the messages of `protos/golden`, which are frozen.

Each `NAME.txtpb` is for people (and for writers of actors in other languages), `NAME.binpb` is the same message as it crosses the wire,
and `NAME.json` as it does for clients that write JSON. These files are never regenerated; a change that breaks one breaks actors in the field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf import json_format, message_factory, text_format
from google.protobuf.descriptor import Descriptor
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
from rollcast.v1 import client_pb2, policy_pb2, session_pb2, spec_pb2, trajectory_pb2

from tests.protos.builders import CAMERA, CARTPOLE

GOLDEN = Path(__file__).resolve().parents[2] / "protos" / "golden"
NAMES = sorted(path.stem for path in GOLDEN.glob("*.binpb"))


def wire(name: str) -> bytes:
    """Returns the frozen bytes."""
    return (GOLDEN / f"{name}.binpb").read_bytes()


def message(name: str) -> Message:
    """Returns the message of the frozen text."""
    text = (GOLDEN / f"{name}.txtpb").read_text(encoding="utf-8")
    found = re.search(r"^# proto-message: (\S+)$", text, re.MULTILINE)
    assert found
    kind: type[Message] = message_factory.GetMessageClass(Default().FindMessageTypeByName(found.group(1)))  # type: ignore[no-untyped-call]
    return text_format.Parse(text, kind())


@pytest.mark.parametrize("name", NAMES)
def test_bytes_and_text_say_the_same(name: str) -> None:
    """The bytes decode to the text, and the text encodes to the bytes."""
    written = message(name)
    assert wire(name) == written.SerializeToString(deterministic=True)
    assert type(written).FromString(wire(name)) == written


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("play_")])
def test_json_says_the_same(name: str) -> None:
    """The JSON of a client's message decodes to the bytes, and the bytes encode to the JSON."""
    text = (GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    written = message(name)
    assert json_format.Parse(text, type(written)()) == written
    assert json_format.MessageToDict(written) == json.loads(text)


def _of_calls() -> Iterator[Descriptor]:
    """Yields the messages of all calls."""
    for module in (client_pb2, policy_pb2, session_pb2, trajectory_pb2):
        for service in module.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                yield from (method.input_type, method.output_type)


def test_each_exchange_has_its_messages() -> None:
    """Every request and response of every call is there, and of a stream every kind of message; each text has its bytes."""
    written = [message(name) for name in NAMES]
    assert {path.stem for path in GOLDEN.iterdir()} == set(NAMES)
    for kind in _of_calls():
        found = [each for each in written if each.DESCRIPTOR.full_name == kind.full_name]
        assert found, kind.full_name
        if (choice := kind.oneofs_by_name.get("message")) is not None and kind.name != "GetPolicyResponse":
            assert {each.WhichOneof("message") for each in found} == {field.name for field in choice.fields}
    for of_clients in (client_pb2.PlayRequest, client_pb2.PlayResponse):
        used = {field.name for each in written if isinstance(each, of_clients) for field, _ in each.ListFields()}
        assert used == set(of_clients.DESCRIPTOR.fields_by_name)
    steps = [entry for each in written if isinstance(each, client_pb2.PlayRequest) for entry in each.steps]
    used = {field.name for entry in steps for field, _ in entry.ListFields()}
    assert used == set(client_pb2.AgentSteps.DESCRIPTOR.fields_by_name)


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


def test_the_first_chunk_of_an_upload() -> None:
    """One segment of one row, as the learner reads it."""
    request = trajectory_pb2.UploadRequest.FromString(wire("upload_request_chunk"))
    chunk = decode_chunk(request.chunk, CARTPOLE, max_bytes=1 << 20)
    assert (chunk.sequence, chunk.segments, chunk.rows, chunk.produced_steps) == (1, 1, 1, 1)
    assert chunk.columns["end"].tolist() == [SegmentEnd.TRUNCATED]


def test_what_is_declared() -> None:
    """An actor and a client declare the same behavior."""
    declared = session_pb2.DeclareBehaviorRequest.FromString(wire("declare_behavior_request")).spec
    (told,) = client_pb2.PlayRequest.FromString(wire("play_request_hello")).hello.behaviors
    assert BehaviorSpec.from_message(declared) == BehaviorSpec.from_message(told) == CARTPOLE


SHAPES = "run float32[64], actor float32[48]"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("spec_mismatch", errors.SpecMismatch(f"obs/state: {SHAPES}", metadata={"obs/state": SHAPES})),
        ("malformed_chunk", errors.MalformedChunk("column reward has type float64; float32 is needed")),
        ("session_expired", errors.SessionExpired("session s-42 is not known; open it again")),
        ("draining", errors.Draining("the learner is about to stop", retry_after_seconds=5.0)),
    ],
)
def test_status_of_an_error(name: str, error: errors.WireError) -> None:
    """The trailer of an error is written and read."""
    status: Any = errors.to_status(error)
    assert wire(name) == dict(status.trailing_metadata)[errors.DETAILS_KEY]
    frozen: Any = rpc_status.to_status(  # type: ignore[no-untyped-call]
        status_pb2.Status.FromString(wire(name))
    )
    received = errors.from_rpc_error(
        grpc.aio.AioRpcError(
            frozen.code,
            grpc.aio.Metadata(),
            grpc.aio.Metadata(*frozen.trailing_metadata),
            details=frozen.details,
        )
    )
    assert type(received) is type(error)
    assert received.metadata == error.metadata
    assert received.retry_after_seconds == error.retry_after_seconds
