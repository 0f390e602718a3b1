"""The two forms of a client's messages on the web: protobuf's JSON mapping, as text, and bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from google.protobuf import json_format
from google.protobuf.message import Message
from rollcast.text import printable
from rollcast.v1.client_pb2 import AgentActions, AgentState, Outcome, PlayRequest, PlayResponse

from actor_client.clients.messages import BadClientData, parsed

MAX_PARTS: Final = 16_384
"""Most objects, lists and other values of a message in JSON, without the numbers of agents."""
MAX_DEPTH: Final = 16
"""Most messages within one another; the deepest one of the contract has 6."""
_MAX_FAULT_CHARS: Final = 200

_TOO_MANY: Final = (
    f"a message has more than {MAX_PARTS} objects, lists and values beside the numbers of agents; send the agents of a behavior "
    "in one entry"
)

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
            if text.count("{") + text.count("[") > MAX_PARTS:
                raise BadClientData(_TOO_MANY)
            return _message_of(json.loads(text, object_pairs_hook=_object))
        except (
            json_format.ParseError,
            ArithmeticError,
            AttributeError,
            KeyError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise BadClientData(
                f"a text is not a PlayRequest in JSON: {_first_line(error)}; see protos/CLIENTS.md"
            ) from None

    def write(self, response: PlayResponse) -> Content:
        """Returns the text of an answer."""
        document = {
            field.camelcase_name: [_plain(each) for each in value]
            if field.name == "actions"
            else json_format.MessageToDict(value)
            if isinstance(value, Message)
            else value
            for field, value in response.ListFields()
        }
        return json.dumps(document, separators=(",", ":"))


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


def _plain(actions: AgentActions) -> dict[str, Any]:
    """Returns the actions of agents as JSON, each list as a whole."""
    return {
        field.camelcase_name: value if isinstance(value, str) else list(value) for field, value in actions.ListFields()
    }


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns an object of JSON.

    Raises:
        ValueError: It has a name twice.
    """
    made = dict(pairs)
    if len(made) < len(pairs):
        raise ValueError("an object has a name twice")
    return made


def _message_of(document: Any) -> PlayRequest:
    """Returns the message that a document is.

    protobuf reads JSON value by value in Python, 4 MiB in seconds, in which nobody is served. So the lists with the numbers of
    agents, of which a large message consists, are added as a whole, and the rest is bounded.

    Raises:
        BadClientData: It has too many parts.
        ValueError, TypeError, KeyError, json_format.ParseError: It is none.
    """
    steps = document.get("steps") if isinstance(document, dict) else None
    taken = [_without_lists(each) for each in steps] if isinstance(steps, list) else []
    _check_size(document)
    request = json_format.ParseDict(document, PlayRequest(), max_recursion_depth=MAX_DEPTH)
    for entry, lists in zip(request.steps, taken, strict=True):
        for name, values in lists:
            _add(getattr(entry, _LISTS[name][0]), values, _LISTS[name][1])
    return request


def _without_lists(steps: Any) -> list[tuple[str, list[Any]]]:
    """Takes the lists with the numbers of agents out of an entry of `steps`, and returns them by name."""
    names = (
        [name for name in steps if name in _LISTS and isinstance(steps[name], list)] if isinstance(steps, dict) else []
    )
    return [(name, steps.pop(name)) for name in names]


def _check_size(document: Any) -> None:
    """Checks that a document has few parts.

    Raises:
        BadClientData: It has many.
    """
    count, waiting = 0, [document]
    while waiting:
        part = waiting.pop()
        inner = list(part.values()) if isinstance(part, dict) else part if isinstance(part, list) else []
        count += len(inner)
        if count > MAX_PARTS:
            raise BadClientData(_TOO_MANY)
        waiting += inner


def _add(field: Any, values: list[Any], convert: Callable[[Any], Any]) -> None:
    """Adds values to a repeated field: as they are if they are numbers, and else as JSON may spell them.

    Raises:
        ValueError, TypeError, KeyError: They are of another type.
    """
    before = len(field)
    try:
        field.extend(values)
    except (TypeError, ValueError):
        del field[before:]
        field.extend([convert(value) for value in values])


def _whole(value: Any) -> int:
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value} is no whole number")
    return int(value)


_LISTS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "agents": ("agents", _whole),
    "values": ("values", float),
    "rewards": ("rewards", float),
    "states": ("states", lambda value: value if isinstance(value, int) else AgentState.Value(value)),
    "allowed": ("allowed", lambda value: value),
    "groups": ("groups", _whole),
    "groupRewards": ("group_rewards", float),
    "group_rewards": ("group_rewards", float),
    "outcomes": ("outcomes", lambda value: value if isinstance(value, int) else Outcome.Value(value)),
}
"""The lists with the numbers of agents: their fields, and what reads a value that is no number."""


def _first_line(error: Exception) -> str:
    return printable(" ".join(str(error).split()), _MAX_FAULT_CHARS)
