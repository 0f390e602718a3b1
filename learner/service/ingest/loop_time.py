"""Limits the time of the event loop that one session may take, so that no actor can delay the others for long."""

from __future__ import annotations

from typing import Final

SHARE: Final = 0.1
"""Seconds of the loop per second that a session may take for chunks that bring nothing: duplicates, refused chunks, and
columns that are large for the rows of their chunk.
"""
BURST_SECONDS: Final = 0.1
"""Time that a session may be ahead before it must wait."""
CHUNK_SECONDS: Final = 0.001
"""Time that a chunk with queued rows may take, beside `BYTE_SECONDS` for each byte of them."""
BYTE_SECONDS: Final = 8e-9
"""Time per byte of queued rows, about four times what pictures take."""


class LoopTime:
    """Measures the processor time that one session takes from the event loop. For the event loop alone.

    Queued rows were granted by credit, so their time counts only as far as it exceeds the session's equal share: of ten
    sessions or fewer, none has to wait because of them unless it takes more than its part of the whole loop.
    """

    __slots__ = ("_at", "_owed_seconds")

    def __init__(self) -> None:
        self._at = 0.0
        self._owed_seconds = 0.0

    def charge(self, seconds: float, queued_bytes: int | None, sessions: int) -> None:
        """Adds the time that a chunk took.

        Args:
            seconds: Processor time of the loop.
            queued_bytes: Declared size of its queued rows, in bytes; None if none was queued.
            sessions: Number of sessions that are uploading.
        """
        granted = 0.0 if queued_bytes is None else min(seconds, CHUNK_SECONDS + BYTE_SECONDS * queued_bytes)
        self._owed_seconds += seconds - granted + granted * min(1.0, SHARE * sessions)

    def wait_seconds(self, now: float) -> float:
        """Returns how long the session must wait before its next chunk, in seconds; 0 if it need not.

        Args:
            now: Monotonic seconds.
        """
        self._owed_seconds = max(0.0, self._owed_seconds - SHARE * (now - self._at))
        self._at = now
        return max(0.0, self._owed_seconds - BURST_SECONDS) / SHARE
