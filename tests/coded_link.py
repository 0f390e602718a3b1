"""A transport that encodes messages between service and trainers, as between processes."""

from __future__ import annotations

from typing import Any

from learner.link.codec import Assembler, Encoded


def coded(message: Any) -> Any:
    """Returns a copy that went through bytes, as between two processes; its arrays are read-only.

    Raises:
        TypeError: The message holds something that cannot leave its process.
    """
    assembler = Assembler()
    *earlier, last = [bytes(piece) for piece in Encoded(message).pieces()]
    for piece in earlier:
        assert assembler.add(piece) is None
    return assembler.add(last)
