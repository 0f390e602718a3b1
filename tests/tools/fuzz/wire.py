"""Messages of the protocol: what a learner reads of an actor's chunks and declarations, and an actor of its learner."""

from __future__ import annotations

import math
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from rollcast.errors import WireError, from_rpc_error, to_status
from rollcast.field_counts import has_too_many_chunk_fields
from rollcast.onnx_files import BadModel, check_self_contained
from rollcast.policies import PolicyAssembler, describe_payload, frames
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import decode_chunk, encode_chunk, find_data_fault
from rollcast.v1 import policy_pb2, session_pb2, spec_pb2, trajectory_pb2

from actor_client.connection.gate import Gate
from actor_client.connection.session import Session
from actor_client.connection.window import SendWindow
from actor_client.exits import ActorError
from actor_client.rollout.assignment import TaskReader
from actor_client.unity.channels.records import engine_records, parameter_records
from tests.protos.builders import (
    CARTPOLE,
    EVERYTHING,
    MEMORY_SIZE,
    MEMORY_STRIDE,
    description,
    full_chunk,
)
from tests.tools.fuzz.target import Target

MAX_COLUMNS_BYTES = 1 << 20


def _chunk(data: bytes) -> None:
    """Decodes the bytes of a chunk as a learner does."""
    if has_too_many_chunk_fields(data):
        return
    request = trajectory_pb2.UploadRequest.FromString(data)
    chunk = decode_chunk(
        request.chunk, EVERYTHING, max_bytes=MAX_COLUMNS_BYTES, memory_size=MEMORY_SIZE, memory_stride=MEMORY_STRIDE
    )
    find_data_fault(chunk, EVERYTHING)
    assert sum(array.nbytes for array in chunk.columns.values()) <= MAX_COLUMNS_BYTES
    assert all(len(array) == chunk.rows for name, array in chunk.columns.items() if chunk.roles[name] == 1)


def _chunks() -> dict[str, bytes]:
    full = full_chunk()
    chunks = {
        "raw": encode_chunk(full),
        "packed": encode_chunk(full_chunk(lengths=(40, 30)), compress=frozenset(full.columns)),
        "counted": encode_chunk(full_chunk(lengths=(50, 50))),  # large enough for its fields to be counted
    }
    return {name: trajectory_pb2.UploadRequest(chunk=chunk).SerializeToString() for name, chunk in chunks.items()}


def _spec(data: bytes) -> None:
    """Decodes the bytes of a declared behavior as a learner does."""
    spec = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(data))
    assert spec == BehaviorSpec.from_message(spec.to_message())


def _specs() -> dict[str, bytes]:
    return {spec.name: spec.to_message().SerializeToString() for spec in (CARTPOLE, EVERYTHING)}


def _policies(data: bytes) -> None:
    """Takes a learner's messages in order as an actor does: headers, frames and assignments."""
    stream = policy_pb2.SubscribeResponse.FromString
    assembler, at = PolicyAssembler(1 << 20), 0
    while at + 2 <= len(data):
        size = int.from_bytes(data[at : at + 2], "little")
        message = stream(data[at + 2 : at + 2 + size])
        at += 2 + size
        match message.WhichOneof("message"):
            case "header":
                assembler.begin(message.header)
            case "frame":
                complete = assembler.add(message.frame)
                assert complete is None or len(complete[1]) == complete[0].size_bytes
            case "assignment":
                _use_assignment(message.assignment)


def _use_assignment(assignment: policy_pb2.Assignment) -> None:
    """Reads an assignment as an actor does, with a Unity player's parameters."""
    reader = TaskReader(has_opponents=True)
    for part in assignment.behaviors:
        reader.of(assignment, part.behavior, part.team).words()
    parameter_records(assignment, 7)


def _framed(*messages: policy_pb2.SubscribeResponse) -> bytes:
    encoded = [message.SerializeToString() for message in messages]
    return b"".join(len(each).to_bytes(2, "little") + each for each in encoded)


def _assignment() -> policy_pb2.Assignment:
    found = policy_pb2.Assignment(id=3, episodes=2, settings_revision=1, parameter_order=["size", "wind"])
    found.behaviors.add(behavior="Crawler", team=0, role=1, match=4)
    found.behaviors.add(behavior="Crawler", team=1, role=2, match=4, version=2, generation=1, sha256=bytes(32))
    found.environment_parameters["size"].constant = 2.0
    found.environment_parameters["wind"].gaussian.st_dev = 0.5
    found.environment_parameters["hill"].multi_range.intervals.add(low=0.0, high=1.0)
    return found


def _policy_streams() -> dict[str, bytes]:
    payload = b"payload of a policy"
    header = describe_payload(description(), payload).to_message()
    messages = [policy_pb2.SubscribeResponse(header=header)]
    messages += [policy_pb2.SubscribeResponse(frame=frame) for frame in frames(payload, 7)]
    assignment = policy_pb2.SubscribeResponse(assignment=_assignment())
    return {"policy": _framed(*messages), "both": _framed(assignment, *messages, assignment)}


def _opened(data: bytes) -> None:
    """Takes a learner's answer to OpenSession as an actor does."""
    session = Session("rig-7", "test")
    _, run = session.opened(session_pb2.OpenSessionResponse.FromString(data))
    assert run.limits.max_chunk_bytes >= run.limits.target_chunk_bytes > 0
    assert 0 < run.lease_seconds < math.inf
    session.request([], 0)
    engine_records(run.engine_settings)
    _use_assignment(run.assignment)


def _openings() -> dict[str, bytes]:
    answer = session_pb2.OpenSessionResponse(
        protocol_revision=1,
        session_id="s-42",
        epoch=1,
        generation=3,
        next_sequence=1,
        lease_ms=30_000,
        limits=session_pb2.ChunkLimits(max_chunk_bytes=1 << 22, target_chunk_bytes=1 << 18),
        behaviors=["Crawler"],
        column_encodings=["zstd"],
        assignment=_assignment(),
    )
    return {"opened": answer.SerializeToString()}


def _uploaded(data: bytes) -> None:
    """Takes a learner's answer in an upload as an actor does: acks, credit and holds."""
    message = trajectory_pb2.UploadResponse.FromString(data)
    gate, window = Gate(1), SendWindow()
    for hold in message.opened.holds:
        gate.apply(hold)
    gate.apply(message.hold)
    for credit in (*message.opened.credit, *message.ack.credit):
        gate.grant(credit)
    window.ack(message.ack.acked_through)


def _upload_answers() -> dict[str, bytes]:
    credit = trajectory_pb2.Credit(behavior_index=0, steps_through=4096, bytes_through=1 << 20, quota_through=64)
    hold = trajectory_pb2.Hold(
        behavior_index=0, reason=trajectory_pb2.HOLD_REASON_UPDATING, active=True, until_version=3
    )
    answers = {
        "opened": trajectory_pb2.UploadResponse(
            opened=trajectory_pb2.UploadOpened(next_sequence=1, credit=[credit], holds=[hold])
        ),
        "ack": trajectory_pb2.UploadResponse(
            ack=trajectory_pb2.Ack(
                acked_through=0,
                credit=[credit],
                rejections=[trajectory_pb2.Rejection(sequence=1, reason="stale", steps=3)],
            )
        ),
        "hold": trajectory_pb2.UploadResponse(hold=hold),
    }
    return {name: answer.SerializeToString() for name, answer in answers.items()}


def _status(data: bytes) -> None:
    """Reads the details of a status as both sides do."""
    nothing, details = grpc.aio.Metadata(), grpc.aio.Metadata(("grpc-status-details-bin", data))
    error = from_rpc_error(grpc.aio.AioRpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, nothing, details, "text"))
    assert error.retry_after_seconds is None or 0 <= error.retry_after_seconds < math.inf
    to_status(error)


def _statuses() -> dict[str, bytes]:
    error = WireError("text", reason="TOO_MANY_SESSIONS", retry_after_seconds=3.0, metadata={"bound": "entries"})
    trailers: dict[str, Any] = dict(to_status(error).trailing_metadata or ())
    return {"details": trailers["grpc-status-details-bin"]}


def _models() -> dict[str, bytes]:
    from onnx import TensorProto, helper

    weight = helper.make_tensor("w", TensorProto.FLOAT, [2, 2], [1.0, 2.0, 3.0, 4.0])
    node = helper.make_node("MatMul", ["obs_0", "w"], ["logits"])
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        [node],
        "policy",
        [value("obs_0", TensorProto.FLOAT, ["B", 2])],
        [value("logits", TensorProto.FLOAT, ["B", 2])],
        [weight],
    )
    return {"policy": helper.make_model(graph).SerializeToString()}


TARGETS = (
    Target("chunk", _chunk, (WireError, DecodeError), _chunks, max_bytes=1 << 15),
    Target("spec", _spec, (WireError, DecodeError), _specs),
    Target("policy-stream", _policies, (WireError, DecodeError), _policy_streams),
    Target("session-answer", _opened, (WireError, ActorError, DecodeError), _openings),
    Target("upload-answer", _uploaded, (ValueError, DecodeError), _upload_answers),
    Target("status-details", _status, (), _statuses),
    Target("onnx", check_self_contained, (BadModel,), _models),
)
