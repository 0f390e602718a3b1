"""What a learner reads of trainers on other machines: the introduction, before they are identified, and their messages."""

from __future__ import annotations

from learner.link.codec import Assembler, DamagedMessageError, Encoded
from learner.shared.introduction import Introduction, RefusedError
from tests.learner.link.test_messages import MESSAGES
from tests.tools.fuzz.target import Target

MAX_BYTES = 1 << 14


def _message(data: bytes) -> None:
    """Joins a message, and encodes what was read: only what can be sent is read."""
    found = Assembler().add(data)
    if found is not None:
        assert Assembler().add(_bytes(found)) is not None


def _bytes(message: object) -> bytes:
    return b"".join(map(bytes, Encoded(message).pieces()))


def _messages() -> dict[str, bytes]:
    found = {f"{number}-{type(message).__name__}": _bytes(message) for number, message in enumerate(MESSAGES)}
    return {name: data for name, data in found.items() if len(data) <= MAX_BYTES}


def _introductions() -> dict[str, bytes]:
    return {
        "rank": Introduction(1, 2, "0.1.0", "secret-token-of-rank").encode(),
        "open": Introduction(0, 1, "0.1.0").encode(),
    }


TARGETS = (
    Target("trainer-introduction", Introduction.decode, (RefusedError,), _introductions),
    Target("link-message", _message, (DamagedMessageError,), _messages, max_bytes=MAX_BYTES),
)
