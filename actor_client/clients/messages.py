"""Messages of clients as bytes, and the fault of a client."""

from typing import Final

from google.protobuf.message import DecodeError
from rollcast.demonstrations.framing import has_too_many_fields
from rollcast.v1 import client_pb2

MAX_FIELDS: Final = 1 << 16
"""Most fields of a message: numbers are packed, so 64 behaviors with 64 observations each have about 20,000."""
MAX_SHOWN_CHARACTERS: Final = 80


class BadClientData(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A client sent unusable data; the text is one line with the behavior and field, the value and the next step."""


def parsed(data: bytes) -> client_pb2.PlayRequest:
    """Returns a message, after counting its fields: an empty one takes a hundred times as much memory as bytes.

    Raises:
        BadClientData: The bytes are no message, or one of too many fields.
    """
    if has_too_many_fields(data, client_pb2.PlayRequest, MAX_FIELDS):
        raise BadClientData(f"a message has more than {MAX_FIELDS} fields; send the agents of a behavior in one entry")
    try:
        return client_pb2.PlayRequest.FromString(data)
    except DecodeError:
        raise BadClientData(f"{len(data)} bytes are not a PlayRequest; see protos/CLIENTS.md") from None


def shown(text: str) -> str:
    """Returns untrusted text for one line: quoted, escaped, cut."""
    return repr(text[:MAX_SHOWN_CHARACTERS]) + ("..." if len(text) > MAX_SHOWN_CHARACTERS else "")
