"""How many fields a serialized message has, before it is parsed: an empty one inside it takes two bytes, and a hundred in memory."""

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

MAX_FIELDS: Final = 131_072
"""Of one message and all inside it. Numbers are packed: a step with 64 observations has a few hundred."""
MIN_FIELD_BYTES: Final = 2
"""A tag, and a number or a length; fewer bytes than twice the limit hold no excess."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10
_SIZES: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def has_too_many_fields(data: bytes, message: type[Message]) -> bool:
    """Returns whether a serialized message has more than `MAX_FIELDS`. What is malformed is left to the parser.

    Args:
        data: the message.
        message: what it is.
    """
    if len(data) <= MAX_FIELDS * MIN_FIELD_BYTES:
        return False
    count = 0
    waiting: list[tuple[int, int, Any]] = [(0, len(data), message.DESCRIPTOR)]
    while waiting:
        position, end, kind = waiting.pop()
        while position < end:
            count += 1
            if count > MAX_FIELDS:
                return True
            tag, position = _varint(data, position)
            wire = tag & 7
            if wire == _VARINT:
                _, position = _varint(data, position)
            elif wire == _LENGTH:
                length, position = _varint(data, position)
                field = kind.fields_by_number.get(tag >> 3)
                if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
                    waiting.append((position, min(end, position + length), field.message_type))
                position += length
            else:
                position += _SIZES.get(wire, 0)
    return False


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the position behind it; after what is none, that is the end of the data."""
    found = 0
    for place, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        found |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return found, position + place + 1
    return 0, len(data)
