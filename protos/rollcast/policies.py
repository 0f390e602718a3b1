"""Stops 11 and 12 of a step's path, policies in transit: a header, frames, and one check of the digest."""

import hashlib
from dataclasses import replace

from rollcast import limits
from rollcast.descriptions import PolicyDescription
from rollcast.enums import Encoding
from rollcast.errors import MalformedChunk, PolicyCorrupt
from rollcast.tensors import unpack
from rollcast.v1 import policy_pb2

__all__ = ["PolicyAssembler", "PolicyDescription", "describe_payload", "frames"]


def describe_payload(description: PolicyDescription, payload: bytes) -> PolicyDescription:
    """Fills in sizes and digest of a payload that is sent uncompressed (weights do not compress)."""
    return replace(
        description,
        encoding=Encoding.RAW,
        size_bytes=len(payload),
        encoded_bytes=len(payload),
        sha256=hashlib.sha256(payload).digest(),
    )


def frames(payload: bytes, frame_bytes: int = limits.FRAME_BYTES) -> list[policy_pb2.PolicyFrame]:
    """Cuts an encoded payload into frames of at most `frame_bytes` bytes.

    Raises:
        ValueError: `frame_bytes` is not in [1, limits.FRAME_BYTES].
    """
    if not 1 <= frame_bytes <= limits.FRAME_BYTES:
        raise ValueError(f"frames of {frame_bytes} bytes; 1 to {limits.FRAME_BYTES} are allowed")
    return [
        policy_pb2.PolicyFrame(offset=offset, data=payload[offset : offset + frame_bytes])
        for offset in range(0, len(payload), frame_bytes)
    ]


class PolicyAssembler:
    """Assembles the policies of one stream.

    After a `PolicyCorrupt` the assembler is empty again and accepts the next header.
    """

    def __init__(self, max_bytes: int = limits.MAX_POLICY_BYTES) -> None:
        self._max_bytes = max_bytes
        self._description: PolicyDescription | None = None
        self._parts: list[bytes] = []
        self._received_bytes = 0

    @property
    def description(self) -> PolicyDescription | None:
        """The policy whose frames are expected; None between policies."""
        return self._description

    def begin(self, header: policy_pb2.PolicyHeader) -> None:
        """Begins a policy with its header.

        Raises:
            PolicyCorrupt: The header is wrong, the policy is too large, or another one is unfinished.
        """
        unfinished = self._description
        self._clear()
        if unfinished is not None:
            raise PolicyCorrupt(f"a header came before version {unfinished.version} was complete")
        description = PolicyDescription.from_message(header)
        largest = max(description.size_bytes, description.encoded_bytes)
        if largest > self._max_bytes:
            raise PolicyCorrupt(f"a policy of {largest} bytes; at most {self._max_bytes} are accepted")
        if not description.size_bytes or not description.encoded_bytes:
            raise PolicyCorrupt("a policy of 0 bytes")
        if description.encoding is Encoding.RAW and description.size_bytes != description.encoded_bytes:
            raise PolicyCorrupt(
                f"a policy of {description.size_bytes} bytes in {description.encoded_bytes} bytes of RAW frames; "
                "both must be equal"
            )
        self._description = description

    def add(self, frame: policy_pb2.PolicyFrame) -> tuple[PolicyDescription, bytes] | None:
        """Adds a frame.

        Returns:
            Description and unpacked, verified bytes when the policy is complete; otherwise None.

        Raises:
            PolicyCorrupt: The frame is out of place, or the policy does not match its header.
        """
        description = self._description
        data = frame.data
        if description is None:
            raise PolicyCorrupt("a frame came without a header")
        fault = self._frame_fault(description, frame.offset, len(data))
        if fault is not None:
            self._clear()
            raise PolicyCorrupt(f"version {description.version}: {fault}")
        self._parts.append(data)
        self._received_bytes += len(data)
        if self._received_bytes < description.encoded_bytes:
            return None
        packed = b"".join(self._parts)
        self._clear()
        return description, _verified(description, packed)

    def _frame_fault(self, description: PolicyDescription, offset: int, size_bytes: int) -> str | None:
        if offset != self._received_bytes:
            return f"a frame begins at byte {offset}, expected {self._received_bytes}"
        if not 1 <= size_bytes <= limits.FRAME_BYTES:
            return f"a frame of {size_bytes} bytes; 1 to {limits.FRAME_BYTES} are allowed"
        if offset + size_bytes > description.encoded_bytes:
            return f"the frames exceed the announced {description.encoded_bytes} bytes"
        return None

    def _clear(self) -> None:
        self._description = None
        self._parts = []
        self._received_bytes = 0


def _verified(description: PolicyDescription, packed: bytes) -> bytes:
    """Returns the unpacked policy after checking its digest."""
    try:
        payload = unpack(packed, description.encoding, description.size_bytes, f"version {description.version}")
    except MalformedChunk as error:
        raise PolicyCorrupt(error.message) from None
    if hashlib.sha256(payload).digest() != description.sha256:
        raise PolicyCorrupt(
            f"version {description.version}: the SHA-256 of the received bytes differs from that of the header"
        )
    return payload
