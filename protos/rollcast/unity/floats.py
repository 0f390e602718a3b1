"""Reads the floats of uncompressed observations from protobuf in bulk.

A serialized FloatData is a tag, a length and the floats in memory layout, so one copy suffices. Reading the repeated
field takes 30 times as long.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rollcast.unity.communicator_objects import observation_pb2

FLOAT: Final = np.dtype("<f4")

_TAG: Final = b"\x0a"
"""Field 1, length-delimited."""
_SHORT_BYTES: Final = 4096
"""Below this size, the calls per agent cost more than another copy of all data."""


class FloatReader:
    """Reads observations of one size.

    Args:
        size: Number of floats of each.
    """

    __slots__ = ("_head", "_length", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._head = _TAG + varint(4 * size)
        self._length = len(self._head) + 4 * size

    def read(self, observations: Sequence[observation_pb2.ObservationProto]) -> NDArray[np.float32] | int:
        """Returns the floats of n agents, float32 [n, size], or the first row with another number of floats."""
        if self._length <= _SHORT_BYTES:
            found = self._joined(observations)
            if found is not None:
                return found
        size, head, start = self._size, self._head, len(self._head)
        found = np.empty((len(observations), size), FLOAT)
        for row, observation in enumerate(observations):
            raw = observation.float_data.SerializeToString()
            if len(raw) == self._length and raw.startswith(head):
                found[row] = np.frombuffer(raw, FLOAT, size, start)
                continue
            values = observation.float_data.data
            if len(values) != size:
                return row
            found[row] = values
        return found

    def _joined(self, observations: Sequence[observation_pb2.ObservationProto]) -> NDArray[np.float32] | None:
        """Returns the floats of n agents by one copy; None if the message of any agent has another form."""
        raws = [observation.float_data.SerializeToString() for observation in observations]
        head, length = self._head, self._length
        for raw in raws:
            if len(raw) != length or not raw.startswith(head):
                return None
        rows = np.frombuffer(b"".join(raws), np.uint8).reshape(len(raws), length)
        return rows[:, len(head) :].copy().view(FLOAT)


def varint(number: int) -> bytes:
    """Encodes a length as protobuf does: seven bits per byte, lowest first; the highest bit means that more follow."""
    groups = bytearray()
    while number > 0x7F:
        groups.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*groups, number))
