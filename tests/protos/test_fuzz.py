"""Tests that random bytes raise only one kind of error."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.errors import WireError
from rollcast.policies import PolicyAssembler, describe_payload
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import decode_chunk, encode_chunk, find_data_fault
from rollcast.v1 import policy_pb2, spec_pb2, trajectory_pb2

from tests.protos.builders import EVERYTHING, MEMORY_SIZE, MEMORY_STRIDE, description, full_chunk

MAX = 1 << 20


def as_chunk(data: bytes) -> None:
    """Decodes the bytes of a chunk as a learner does."""
    message = trajectory_pb2.Chunk.FromString(data)
    chunk = decode_chunk(message, EVERYTHING, max_bytes=MAX, memory_size=MEMORY_SIZE, memory_stride=MEMORY_STRIDE)
    find_data_fault(chunk, EVERYTHING)
    assert sum(array.nbytes for array in chunk.columns.values()) <= MAX
    assert all(len(array) == chunk.rows for name, array in chunk.columns.items() if chunk.roles[name] == 1)


def as_spec(data: bytes) -> None:
    """Decodes the bytes of a declaration as a learner does."""
    spec = BehaviorSpec.from_message(spec_pb2.BehaviorSpec.FromString(data))
    assert spec == BehaviorSpec.from_message(spec.to_message())


def as_header(data: bytes) -> None:
    """Decodes a header as an actor does."""
    PolicyAssembler().begin(policy_pb2.PolicyHeader.FromString(data))


def survives(use: Callable[[bytes], None], data: bytes) -> bool:
    """Returns whether the bytes were accepted; raises unless they were properly refused."""
    try:
        use(data)
    except (WireError, DecodeError):
        return False
    return True


RAW = encode_chunk(full_chunk()).SerializeToString()
PACKED = encode_chunk(full_chunk(lengths=(40, 30)), compress=frozenset(full_chunk().columns)).SerializeToString()
SPEC = EVERYTHING.to_message().SerializeToString()
HEADER = describe_payload(description(), b"payload").to_message().SerializeToString()
SEEDS = [(as_chunk, RAW), (as_chunk, PACKED), (as_spec, SPEC), (as_header, HEADER)]
IDS = ["raw chunk", "packed chunk", "spec", "policy header"]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Flips, inserts, removes, repeats or exchanges a few bytes."""
    result = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(result))
        match rng.randrange(6):
            case 0:
                result[at] ^= 1 << rng.randrange(8)
            case 1:
                result[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            case 2:
                del result[at : at + rng.randrange(1, 9)]
            case 3:
                result[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                result[at:at] = result[at : at + rng.randrange(1, 64)]
            case _:
                # A long varint: where a length or a shape stands, the largest number.
                result[at : at + 1] = b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
        if not result:
            return b""
    return bytes(result)


@pytest.mark.parametrize(("use", "data"), SEEDS, ids=IDS)
def test_mutated_messages_are_accepted_or_refused(use: Callable[[bytes], None], data: bytes) -> None:
    """Corrupted messages are accepted or refused."""
    rng = random.Random(7)
    assert survives(use, data)
    accepted = sum(survives(use, mutated(data, rng)) for _ in range(600))
    assert accepted < 600


@settings(deadline=None, max_examples=200)
@given(data=st.data())
def test_one_changed_number_in_any_tensor_is_survived(data: st.DataObject) -> None:
    """Any replaced type, shape, encoding or name of a tensor is accepted or refused."""
    message = trajectory_pb2.Chunk.FromString(RAW)
    column = message.columns[data.draw(st.integers(0, len(message.columns) - 1))]
    match data.draw(st.sampled_from(["dtype", "shape", "encoding", "role", "name", "rows", "segments", "episodes"])):
        case "shape":
            column.tensor.ClearField("shape")
            column.tensor.shape.extend(data.draw(st.lists(st.integers(0, 2**64 - 1), max_size=10)))
        case "dtype":
            column.tensor.dtype = data.draw(st.integers(-(2**31), 2**31 - 1))  # type: ignore[assignment]
        case "encoding":
            column.tensor.encoding = data.draw(st.integers(-(2**31), 2**31 - 1))  # type: ignore[assignment]
        case "role":
            column.role = data.draw(st.integers(-(2**31), 2**31 - 1))  # type: ignore[assignment]
        case "name":
            column.name = data.draw(st.text(max_size=90))
        case counter:
            setattr(message, counter, data.draw(st.integers(0, 2**32 - 1)))
    survives(as_chunk, message.SerializeToString())
