"""Counts the fields of a chunk's message before parsing: an empty field takes two bytes, but a hundred in memory."""

from typing import Final

from rollcast import limits

CHUNK_FIELD: Final = 2
"""Number of `chunk` in UploadRequest."""

_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_MAX_VARINT_BYTES: Final = 10


def has_too_many_chunk_fields(request: bytes) -> bool:
    """Returns whether an UploadRequest and the chunk in it have more than `MAX_CHUNK_FIELDS` fields of their own.

    Fields of inner messages are skipped: a chunk may have at most `MAX_COLUMNS` columns, and the parser joins repeated
    parts of a column. Requests of up to `UNCOUNTED_BYTES` cannot cost much, and malformed ones are left to the parser.

    Args:
        request: The serialized UploadRequest.
    """
    if len(request) <= limits.UNCOUNTED_BYTES:
        return False
    left = limits.MAX_CHUNK_FIELDS
    position, end = 0, len(request)
    try:
        while position < end and left > 0:
            left -= 1
            tag, position = read_varint(request, position)
            if tag >> 3 == CHUNK_FIELD and tag & 7 == _LENGTH:
                length, position = read_varint(request, position)
                left -= _count_fields(request, position, min(end, position + length), left)
                position += length
            else:
                position = _skip(request, position, tag & 7)
    except IndexError:
        return False
    return position < end or left < 0


def _count_fields(data: bytes, position: int, end: int, most: int) -> int:
    """Returns the number of fields in a part of the data; `most` + 1 if there are more.

    Every chunk of more than a few rows passes here, so the tags and lengths that occur are read without a call.

    Raises:
        IndexError: The data is malformed.
    """
    count = 0
    while position < end and count <= most:
        count += 1
        tag = data[position]
        position += 1
        if tag & 0x87 != _LENGTH:
            if tag >= 0x80:  # the number of a field above 15; its kind is in the first byte
                position = read_varint(data, position)[1]
            position = _skip(data, position, tag & 7)
            continue
        length = data[position]
        position += 1
        if length >= 0x80:
            more = data[position]
            length += (more << 7) - 0x80
            position += 1
            if more >= 0x80:
                more = data[position]
                length += (more << 14) - 0x4000
                position += 1
                if more >= 0x80:  # a megabyte and more
                    rest, position = read_varint(data, position)
                    length += (rest << 21) - 0x200000
        position += length
    return count


def _skip(data: bytes, position: int, wire: int) -> int:
    """Returns the position after the value of a field."""
    if wire == _VARINT:
        return position + 1 if data[position] < 0x80 else read_varint(data, position)[1]
    if wire == _LENGTH:
        length, position = read_varint(data, position)
        return position + length
    return position + (8 if wire == _EIGHT_BYTES else 4 if wire == _FOUR_BYTES else 0)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Returns a number and the position after it; for malformed data the position is the end."""
    found = 0
    for place, byte in enumerate(data[position : position + _MAX_VARINT_BYTES]):
        found |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return found, position + place + 1
    return 0, len(data)
