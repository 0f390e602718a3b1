"""New weights in an old ONNX file: the bytes of its initializers are replaced where they stand.

An ONNX file is a protobuf message, so the place of each initializer's bytes follows from walking its fields once:
``ModelProto.graph`` (7) > ``GraphProto.initializer`` (5) > ``TensorProto.name`` (8), ``TensorProto.raw_data`` (9). From
then on a version costs a copy.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Slot:
    """Where the bytes of one initializer stand."""

    offset: int
    size_bytes: int


class Splicer:
    """A serialized model whose weights can be replaced.

    Args:
        model: a serialized ``ModelProto`` whose initializers hold raw data.
        names: those that change; the graph need not use all of them.
    """

    def __init__(self, model: bytes, names: Collection[str]) -> None:
        self.slots = {name: slot for name, slot in find_slots(model).items() if name in names}
        self._buffer = np.frombuffer(bytearray(model), np.uint8)  # reused: only the slots ever change

    @property
    def size_bytes(self) -> int:
        """Size of a rendered model."""
        return int(self._buffer.size)

    def render(self, weights: Mapping[str, NDArray[np.uint8]]) -> bytes:
        """Returns the model with other weights.

        Args:
            weights: the bytes of each, ``[size_bytes]``, little-endian and in C order.

        Raises:
            KeyError: an initializer is missing.
            ValueError: one has another size.
        """
        for name, slot in self.slots.items():
            data = weights[name]
            if data.size != slot.size_bytes:
                raise ValueError(f"{name} has {data.size} bytes; the exported graph has {slot.size_bytes}")
            self._buffer[slot.offset : slot.offset + slot.size_bytes] = data
        return self._buffer.tobytes()


def find_slots(model: bytes) -> dict[str, Slot]:
    """Finds the raw data of every initializer of a serialized model, by name."""
    slots = {}
    for begin, end in _fields(model, 0, len(model), _GRAPH):
        for tensor_begin, tensor_end in _fields(model, begin, end, _INITIALIZER):
            (name_begin, name_end), *_ = _fields(model, tensor_begin, tensor_end, _NAME)
            for data_begin, data_end in _fields(model, tensor_begin, tensor_end, _RAW_DATA):
                slots[model[name_begin:name_end].decode("utf-8")] = Slot(data_begin, data_end - data_begin)
    return slots


def _fields(data: bytes, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Yields where the length-delimited fields of one number begin and end, in one message."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _BYTES:
            size, at = _varint(data, at)
            if number == wanted:
                yield at, at + size
            at += size
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"the field {number} at byte {at} has the wire type {wire_type}; this is no ONNX model")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a number of seven bits a byte, the lowest first; returns it and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
