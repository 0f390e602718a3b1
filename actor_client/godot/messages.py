"""The messages of the plug-in's protocol: JSON objects with a ``type``."""

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from rollcast.text import printable

_SHOWN: Final = 80
_NOT_JSON: Final = re.compile(r"(?<=[\[:,])\s*(-?)(nan|inf)\s*(?=[\],}])")
"""Numbers as Godot prints them, which are no JSON."""


class GameFault(Exception):  # noqa: N818 - says what the game did
    """What a game did wrong, in words that follow "the game "."""


def encode(kind: str, **content: object) -> bytes:
    """Returns a message, in ASCII."""
    return json.dumps({"type": kind, **content}, separators=(",", ":"), allow_nan=False).encode("ascii")


HANDSHAKE: Final = encode("handshake", major_version="0", minor_version="7")
"""A game does not answer it, and only prints a warning if its version is another."""
ENV_INFO: Final = encode("env_info")
RESET: Final = encode("reset")
CLOSE: Final = encode("close")


def decode(body: bytes, kind: str) -> Mapping[str, Any]:
    """Returns the answer of a game.

    Args:
        body: The message.
        kind: The type that it must have.

    Raises:
        GameFault: It is none.
    """
    try:
        text = body.decode("utf-8")
        try:
            found: object = json.loads(text)
        except ValueError:
            found = json.loads(
                _NOT_JSON.sub(lambda number: "NaN" if number[2] == "nan" else f"{number[1]}Infinity", text)
            )
    except (ValueError, RecursionError) as error:
        raise GameFault(f"sent what is not JSON: {printable(str(error), _SHOWN)}") from None
    if not isinstance(found, dict) or found.get("type") != kind:
        got = found.get("type") if isinstance(found, dict) else found
        raise GameFault(f"answered with {shown(got)} in place of {kind}")
    return found


def column(message: Mapping[str, Any], name: str, agents: int) -> Sequence[Any]:
    """Returns a list of a message with one entry for each agent.

    Args:
        message: The message.
        name: The list's name.
        agents: Number of agents.

    Raises:
        GameFault: It is none.
    """
    found = message.get(name)
    if not isinstance(found, list) or len(found) != agents:
        got = f"{len(found)} entries" if isinstance(found, list) else shown(found)
        raise GameFault(f"sent {name} with {got}, and has {agents} agents")
    return found


def shown(value: object) -> str:
    """Returns a value of a message in words, shortened."""
    return printable(reprlib.repr(value), _SHOWN)
