"""Counts the fields of a serialized message before parsing: an empty field takes two bytes, but a hundred in memory."""

from typing import Any, Final

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from rollcast.field_counts import read_varint

MAX_FIELDS: Final = 131_072
"""Fields of one message and its inner ones. Numbers are packed: a step with 64 observations has a few hundred."""
MIN_FIELD_BYTES: Final = 2
"""Least bytes of a field: a tag, and a number or a length; shorter data cannot exceed the limit."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_SIZES: Final = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}


def has_too_many_fields(data: bytes, message: type[Message], most: int = MAX_FIELDS) -> bool:
    """Returns whether a serialized message has more than `most` fields. Malformed data is left to the parser.

    Args:
        data: The message.
        message: The message's type.
        most: Largest number of fields.
    """
    if len(data) <= most * MIN_FIELD_BYTES:
        return False
    count = 0
    waiting: list[tuple[int, int, Any]] = [(0, len(data), message.DESCRIPTOR)]
    while waiting:
        position, end, kind = waiting.pop()
        while position < end:
            count += 1
            if count > most:
                return True
            tag, position = read_varint(data, position)
            wire = tag & 7
            if wire == _VARINT:
                _, position = read_varint(data, position)
            elif wire == _LENGTH:
                length, position = read_varint(data, position)
                field = kind.fields_by_number.get(tag >> 3)
                if field is not None and field.type == FieldDescriptor.TYPE_MESSAGE:
                    waiting.append((position, min(end, position + length), field.message_type))
                position += length
            else:
                position += _SIZES.get(wire, 0)
    return False
