"""The two forms of a client's messages on the web: protobuf's JSON mapping, as text, and bytes."""

from __future__ import annotations

import json
from typing import Final, Protocol, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import DecodeError
from rollcast.demonstrations.framing import has_too_many_fields
from rollcast.text import printable
from rollcast.v1.client_pb2 import PlayRequest, PlayResponse

MAX_FIELDS: Final = 131_072
"""Most fields of a message, and most brackets of one in JSON: numbers are packed, so a step of 1,000 agents has few of both."""
MAX_DEPTH: Final = 16
"""Most messages within one another; the deepest one of the contract has 6."""
_MAX_FAULT_CHARS: Final = 200

Content: TypeAlias = str | bytes


class Unreadable(Exception):  # noqa: N818 - it says what happened
    """Raised if content is no message; the text says why in one line."""


class Form(Protocol):
    """One way to write messages.

    Attributes:
        subprotocol: Its name among those of WebSocket.
        content_type: Its name among those of HTTP.
        is_text: Whether its content is text.
    """

    subprotocol: str
    content_type: str
    is_text: bool

    def read(self, content: Content) -> PlayRequest:
        """Returns the message that content holds.

        Raises:
            Unreadable: It holds none.
        """
        ...

    def write(self, response: PlayResponse) -> Content:
        """Returns the content of an answer."""
        ...


class JsonForm:
    """Protobuf's JSON mapping."""

    subprotocol = "rollcast.v1.json"
    content_type = "application/json"
    is_text = True

    def read(self, content: Content) -> PlayRequest:
        """Returns the message that a text holds.

        Raises:
            Unreadable: It holds none.
        """
        try:
            text = content if isinstance(content, str) else content.decode("utf-8")
            if text.count("{") + text.count("[") > MAX_FIELDS:
                raise Unreadable(f"the message has more than {MAX_FIELDS} objects and lists; send fewer agents in each")
            return json_format.Parse(text, PlayRequest(), max_recursion_depth=MAX_DEPTH)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise Unreadable(f"the message is not PlayRequest in JSON: {_first_line(error)}") from None

    def write(self, response: PlayResponse) -> Content:
        """Returns the text of an answer."""
        return json.dumps(json_format.MessageToDict(response), separators=(",", ":"))


class BinaryForm:
    """Serialized messages."""

    subprotocol = "rollcast.v1.binary"
    content_type = "application/x-protobuf"
    is_text = False

    def read(self, content: Content) -> PlayRequest:
        """Returns the message that bytes hold.

        Raises:
            Unreadable: They hold none.
        """
        data = content if isinstance(content, bytes) else content.encode()
        if has_too_many_fields(data, PlayRequest, MAX_FIELDS):
            raise Unreadable(f"the message has more than {MAX_FIELDS} fields; send fewer agents in each")
        try:
            return PlayRequest.FromString(data)
        except DecodeError:
            raise Unreadable(f"these {len(data)} bytes are not PlayRequest") from None

    def write(self, response: PlayResponse) -> Content:
        """Returns the bytes of an answer."""
        return response.SerializeToString()


JSON: Final = JsonForm()
FORMS: Final[tuple[Form, ...]] = (JSON, BinaryForm())


def _first_line(error: Exception) -> str:
    return printable(" ".join(str(error).split()), _MAX_FAULT_CHARS)
