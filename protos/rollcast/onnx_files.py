"""Refuses ONNX models that refer to data outside of their own bytes.

A policy comes from the network. In ONNX a tensor can name a file that holds its data, and ONNX Runtime would open it.
This module walks the parts of the protobuf encoding that can hold tensors, without unpacking the tensors: the actor
needs no ONNX package, and the cost grows with the number of nodes, not with the size.
"""

from collections.abc import Iterator
from typing import Final

MAX_DEPTH: Final = 32
"""Nesting limit of graphs in node attributes; real policies nest twice at most."""

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5

_EXTERNAL_DATA: Final = 13
_DATA_LOCATION: Final = 14

# Fields of onnx.proto (IR version 10) that lead to tensors, by message.
_CHILDREN: Final[dict[str, dict[int, str]]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}


class BadModel(Exception):  # noqa: N818 - names what is bad, like the classes of rollcast.errors
    """The bytes are not a protobuf message, or a tensor's data is in a file."""


def check_self_contained(model: bytes) -> None:
    """Checks that every tensor of a serialized ONNX model holds its own data.

    Args:
        model: A serialized ModelProto.

    Raises:
        BadModel: A tensor refers to external data, graphs nest too deeply, or the encoding is broken.
    """
    pending: list[tuple[str, memoryview, int]] = [("model", memoryview(model), 0)]
    while pending:
        kind, view, depth = pending.pop()
        if depth > 4 * MAX_DEPTH:
            raise BadModel(f"graphs nest more than {MAX_DEPTH} levels deep")
        children = _CHILDREN[kind]
        for field, value in _fields(view):
            if kind == "tensor" and (field == _EXTERNAL_DATA or (field == _DATA_LOCATION and value != 0)):
                raise BadModel("a tensor's data is in a separate file; a policy must contain all of its data")
            child = children.get(field)
            if child is not None and isinstance(value, memoryview):
                pending.append((child, value, depth + 1))


def _fields(view: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yields the number and value of each field: an integer, or the bytes of a string or message."""
    at = 0
    while at < len(view):
        key, at = _varint(view, at)
        wire_type = key & 7
        value: int | memoryview = 0
        if wire_type == _VARINT:
            value, at = _varint(view, at)
        elif wire_type == _BYTES:
            length, at = _varint(view, at)
            value, at = view[at : at + length], at + length
        elif wire_type == _FIXED32:
            at += 4
        elif wire_type == _FIXED64:
            at += 8
        else:
            raise BadModel(f"wire type {wire_type} at byte {at}: not an ONNX model")
        if at > len(view):
            raise BadModel("the model is cut off inside a field")
        yield key >> 3, value


def _varint(view: memoryview, at: int) -> tuple[int, int]:
    """Returns a variable-length integer and the position after it (at most 10 bytes, protobuf encoding)."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            raise BadModel("the model is cut off inside a number")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadModel(f"a number of more than 10 bytes at byte {at}")
