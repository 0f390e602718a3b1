"""Tests that a policy arrives whole and verified."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import Distribution, Dtype, Encoding, PolicyFormat, Squash
from rollcast.errors import PolicyCorrupt
from rollcast.limits import FRAME_BYTES
from rollcast.policies import PolicyAssembler, PolicyDescription, describe_payload, frames
from rollcast.transforms import ActionTransform
from rollcast.v1 import policy_pb2

from tests.protos.builders import description

PAYLOAD = bytes(range(256)) * 10


def receive(
    header: policy_pb2.PolicyHeader, sent: list[policy_pb2.PolicyFrame], **options: int
) -> list[tuple[PolicyDescription, bytes] | None]:
    """Feeds a header and frames as serialized bytes."""
    assembler = PolicyAssembler(**options)
    assembler.begin(policy_pb2.PolicyHeader.FromString(header.SerializeToString()))
    return [assembler.add(policy_pb2.PolicyFrame.FromString(frame.SerializeToString())) for frame in sent]


@settings(deadline=None, max_examples=50)
@given(payload=st.binary(min_size=1, max_size=300), frame_bytes=st.integers(1, 310))
def test_round_trip(payload: bytes, frame_bytes: int) -> None:
    """A payload in frames of any size is complete with the last frame."""
    described = describe_payload(description(), payload)
    *before, last = receive(described.to_message(), frames(payload, frame_bytes))
    assert before == [None] * len(before)
    assert last == (described, payload)


def test_a_packed_policy_is_unpacked_and_the_digest_is_of_the_unpacked_bytes() -> None:
    """A compressed policy is decompressed, and the digest is that of the result."""
    packed = zstandard.ZstdCompressor().compress(PAYLOAD)
    described = replace(describe_payload(description(), PAYLOAD), encoding=Encoding.ZSTD, encoded_bytes=len(packed))
    assert receive(described.to_message(), frames(packed, 100))[-1] == (described, PAYLOAD)


def frame(offset: int, data: bytes) -> policy_pb2.PolicyFrame:
    """Returns a frame."""
    return policy_pb2.PolicyFrame(offset=offset, data=data)


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        ([frame(1, PAYLOAD)], "a frame begins at byte 1, expected 0"),
        ([frame(0, b"ab"), frame(0, b"ab")], "a frame begins at byte 0, expected 2"),
        ([frame(0, b"ab"), frame(3, b"ab")], "a frame begins at byte 3, expected 2"),
        ([frame(0, b"")], "a frame of 0 bytes"),
        ([frame(0, bytes(FRAME_BYTES + 1))], "a frame of 1048577 bytes"),
        ([frame(0, PAYLOAD + b"x")], "frames exceed the announced 2560 bytes"),
        ([frame(0, b"x" * len(PAYLOAD))], "the SHA-256"),
    ],
)
def test_frames_out_of_place_and_wrong_bytes_are_refused(sent: list[policy_pb2.PolicyFrame], message: str) -> None:
    """Gaps, repetitions, long frames and wrong digests are refused, and the next policy is accepted."""
    described = describe_payload(description(), PAYLOAD)
    assembler = PolicyAssembler()
    assembler.begin(described.to_message())
    with pytest.raises(PolicyCorrupt, match=message):
        list(map(assembler.add, sent))
    assembler.begin(described.to_message())
    assert assembler.add(frames(PAYLOAD)[0]) == (described, PAYLOAD)


def test_a_frame_needs_a_header_and_a_header_needs_the_end_of_the_last_policy() -> None:
    """A frame needs a header, and a header needs the end of the previous policy."""
    assembler = PolicyAssembler()
    with pytest.raises(PolicyCorrupt, match="without a header"):
        assembler.add(frame(0, b"x"))
    header = describe_payload(description(), PAYLOAD).to_message()
    assembler.begin(header)
    with pytest.raises(PolicyCorrupt, match="before version 12 was complete"):
        assembler.begin(header)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size_bytes": 0}, "a policy of 0 bytes"),
        ({"encoded_bytes": 0}, "a policy of 0 bytes"),
        ({"encoded_bytes": 7}, "2560 bytes in 7 bytes of RAW frames"),
        ({"size_bytes": 1 << 62, "encoded_bytes": 1 << 62}, "at most 1073741824 are accepted"),
        ({"size_bytes": 1 << 62, "encoding": Encoding.ZSTD}, "at most 1073741824 are accepted"),
    ],
)
def test_sizes_are_checked_before_anything_is_taken(changes: dict[str, Any], message: str) -> None:
    """Sizes are checked before memory is allocated."""
    header = replace(describe_payload(description(), PAYLOAD), **changes).to_message()
    with pytest.raises(PolicyCorrupt, match=message):
        PolicyAssembler().begin(header)
    with pytest.raises(PolicyCorrupt, match="at most 2559 are accepted"):
        receive(describe_payload(description(), PAYLOAD).to_message(), [], max_bytes=2559)


def test_a_packed_policy_of_another_size_is_refused() -> None:
    """A compressed policy whose frame has another size than the header is refused."""
    packed = zstandard.ZstdCompressor().compress(bytes(1 << 20))
    described = replace(describe_payload(description(), PAYLOAD), encoding=Encoding.ZSTD, encoded_bytes=len(packed))
    with pytest.raises(PolicyCorrupt, match="states 1048576 bytes, but 2560 bytes are needed"):
        receive(described.to_message(), frames(packed))


VARIANTS = [
    description(),
    description(inputs=("obs_0",), outputs=("log_std", "mean"), discrete_distribution=Distribution.UNSPECIFIED),
    description(
        inputs=("obs_0", "action_masks", "recurrent_in"),
        outputs=("logits", "recurrent_out"),
        continuous_distribution=Distribution.UNSPECIFIED,
        action_transform=ActionTransform(),
        memory_size=128,
        memory_stride=64,
    ),
    description(
        continuous_distribution=Distribution.TANH_GAUSSIAN,
        action_transform=ActionTransform(Squash.TANH),
        dtype=Dtype.BFLOAT16,
        deterministic=True,
    ),
    description(uniform=True, action_transform=ActionTransform(Squash.CLIP3_DIV3)),
    description(format=PolicyFormat.SAFETENSORS, inputs=(), outputs=()),
    description(inputs=("obs_1", "obs_2", "obs_10", "action_masks")),
]


@pytest.mark.parametrize("variant", VARIANTS)
def test_descriptions_survive_the_wire(variant: PolicyDescription) -> None:
    """Every field of every kind of policy survives a round trip."""
    described = describe_payload(variant, PAYLOAD)
    sent = described.to_message().SerializeToString()
    assert described == PolicyDescription.from_message(policy_pb2.PolicyHeader.FromString(sent))


def test_a_discrete_policy_needs_no_transform() -> None:
    """A discrete policy needs no transform."""
    message = describe_payload(VARIANTS[2], PAYLOAD).to_message()
    message.ClearField("action_transform")
    assert ActionTransform() == PolicyDescription.from_message(message).action_transform


def unset_distributions(header: policy_pb2.PolicyHeader) -> None:
    """Removes the distributions from a description."""
    header.ClearField("continuous_distribution")
    header.ClearField("discrete_distribution")


def uniform_without_bounds(header: policy_pb2.PolicyHeader) -> None:
    """Requests uniform actions of draws that are not squashed."""
    header.uniform = True
    header.action_transform.squash = Squash.NONE  # type: ignore[assignment]


Change = Callable[[policy_pb2.PolicyHeader], object]
HEADER_FAULTS: list[tuple[Change, str]] = [
    (lambda m: setattr(m, "behavior", ".."), "behavior name '..'"),
    (lambda m: setattr(m, "continuous_distribution", 9), "continuous distribution 9 is unknown"),
    (lambda m: setattr(m, "discrete_distribution", 9), "discrete distribution 9 is unknown"),
    (lambda m: setattr(m, "dtype", 99), "weight type 99"),
    (lambda m: setattr(m, "dtype", Dtype.BOOL), "weights cannot have the type BOOL"),
    (lambda m: setattr(m, "dtype", 0), "weights cannot have the type UNSPECIFIED"),
    (lambda m: setattr(m, "format", 0), "format or encoding is missing"),
    (lambda m: setattr(m, "format", 9), "format 9"),
    (lambda m: setattr(m, "encoding", 0), "format or encoding is missing"),
    (lambda m: setattr(m, "encoding", 9), "encoding 9"),
    (lambda m: setattr(m, "sha256", b"short"), "sha256 has 5 bytes"),
    (lambda m: setattr(m, "architecture_hash", b""), "architecture_hash has 0 bytes"),
    (lambda m: m.action_transform.Clear(), "squash 0 is unknown"),
    (lambda m: setattr(m, "continuous_distribution", 3), "CATEGORICAL for continuous"),
    (lambda m: setattr(m, "discrete_distribution", 1), "GAUSSIAN_CLIP3 for discrete"),
    (lambda m: setattr(m, "continuous_distribution", 2), "needs the squash TANH"),
    (uniform_without_bounds, "need a squash"),
    (lambda m: setattr(m, "memory_size", 8), "memory_size 8 and memory_stride 0"),
    (lambda m: setattr(m, "memory_stride", 8), "memory_size 0 and memory_stride 8"),
    (lambda m: m.inputs.__setitem__(0, "obs_01"), "do not begin with obs_0"),
    (lambda m: m.inputs.__setitem__(0, "obs_64"), "do not begin with obs_0"),
    (lambda m: m.inputs.insert(0, "obs_1"), "do not begin with obs_0"),
    (lambda m: m.inputs.__setitem__(1, "obs_0"), "do not begin with obs_0"),
    (lambda m: m.inputs.__setitem__(0, "action_masks"), "do not fit the distributions"),
    (lambda m: m.inputs.insert(0, "action_masks"), "do not fit the distributions"),
    (lambda m: m.inputs.append("recurrent_in"), "do not fit the distributions"),
    (lambda m: m.inputs.append("seed"), "do not fit the distributions"),
    (lambda m: m.ClearField("inputs"), "do not begin with obs_0"),
    (lambda m: m.outputs.append("value"), "expected"),
    (lambda m: m.outputs.append("mean"), "expected"),
    (lambda m: m.outputs.pop(), "expected"),
    (unset_distributions, "neither a continuous nor a discrete"),
]


@pytest.mark.parametrize(("change", "message"), HEADER_FAULTS, ids=[message for _, message in HEADER_FAULTS])
def test_a_header_that_contradicts_itself_is_refused(change: Change, message: str) -> None:
    """A contradictory header is refused before a frame."""
    header = describe_payload(description(), PAYLOAD).to_message()
    change(header)
    with pytest.raises(PolicyCorrupt, match=message):
        PolicyAssembler().begin(header)


@pytest.mark.parametrize("frame_bytes", [0, -1, FRAME_BYTES + 1])
def test_frames_keep_to_the_limit(frame_bytes: int) -> None:
    """Frames never exceed the limit."""
    with pytest.raises(ValueError, match="are allowed"):
        frames(PAYLOAD, frame_bytes)
