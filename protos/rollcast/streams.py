"""Prepares the standard streams of a command, and writes log lines to them."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import TextIO


def prepare_streams() -> None:
    """Replaces standard streams that the caller closed, and makes the others escape characters they cannot encode.

    The descriptors of closed streams are taken, too: a later file must not have the number that a child gets as its stream. On
    Windows, output to a file or a pipe uses an encoding of 256 characters.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)  # the lowest number is free
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed, as in `... >&-`
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115 - open to the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


class ErrorStream:
    """Writes to the current standard error, which a live panel may replace. Lines that cannot be written are lost.

    A closed terminal ends no command.

    Args:
        stream: Another stream to write to.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream

    @property
    def _now(self) -> TextIO:
        return sys.stderr if self._stream is None else self._stream

    def write(self, text: str) -> int:
        """Writes a text; returns the number of characters written."""
        try:
            return self._now.write(text)
        except (OSError, ValueError):  # ValueError: the stream was closed
            return 0

    def flush(self) -> None:
        """Writes buffered text."""
        try:
            self._now.flush()
        except (OSError, ValueError):
            return

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        try:
            return self._now.isatty()
        except (OSError, ValueError):
            return False
