"""The two forms of a client's messages on the web: protobuf's JSON mapping, as text, and bytes."""

from __future__ import annotations

import json
from typing import Final, Protocol, TypeAlias

from google.protobuf import json_format
from rollcast.text import printable
from rollcast.v1.client_pb2 import PlayRequest, PlayResponse

from actor_client.clients.messages import MAX_FIELDS, BadClientData, parsed

MAX_DEPTH: Final = 16
"""Most messages within one another; the deepest one of the contract has 6."""
_MAX_FAULT_CHARS: Final = 200

Content: TypeAlias = str | bytes


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
            BadClientData: It holds none.
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
            BadClientData: It holds none.
        """
        try:
            text = content if isinstance(content, str) else content.decode("utf-8")
            if text.count("{") + text.count("[") > MAX_FIELDS:
                raise BadClientData(
                    f"a message has more than {MAX_FIELDS} objects and lists; send the agents of a behavior in one entry"
                )
            return json_format.Parse(text, PlayRequest(), max_recursion_depth=MAX_DEPTH)
        except (json_format.ParseError, ValueError, TypeError, AttributeError, RecursionError) as error:
            raise BadClientData(
                f"a text is not a PlayRequest in JSON: {_first_line(error)}; see protos/CLIENTS.md"
            ) from None

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
            BadClientData: They hold none, or one of too many fields.
        """
        return parsed(content if isinstance(content, bytes) else content.encode())

    def write(self, response: PlayResponse) -> Content:
        """Returns the bytes of an answer."""
        return response.SerializeToString()


JSON: Final = JsonForm()
FORMS: Final[tuple[Form, ...]] = (JSON, BinaryForm())


def _first_line(error: Exception) -> str:
    return printable(" ".join(str(error).split()), _MAX_FAULT_CHARS)
