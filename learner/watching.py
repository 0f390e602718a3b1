"""Showing something again and again: drawn over itself on a terminal, one block after another elsewhere."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from typing import Final, TextIO

_CLEAR: Final = "\x1b[2J"
_HOME: Final = "\x1b[H"
_END_OF_LINE: Final = "\x1b[K\n"
_BELOW: Final = "\x1b[J"


def watch(read: Callable[[], str], seconds: float, output: TextIO, *, separator: str = "\n\n") -> None:
    """Shows a text until Ctrl-C, which ends it in good order. To be called in the main thread.

    Args:
        read: returns the text.
        seconds: between two readings.
        output: where to.
        separator: between two texts where nothing can be drawn over.
    """
    is_terminal = output.isatty()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        if is_terminal:
            output.write(_CLEAR)
        while True:
            due = time.monotonic() + seconds
            text = read()
            output.write(_drawn(text) if is_terminal else text + separator)
            output.flush()
            time.sleep(max(0.0, due - time.monotonic()))
    except KeyboardInterrupt:
        if is_terminal:
            output.write("\n")
    finally:
        signal.signal(signal.SIGINT, before)


def _drawn(text: str) -> str:
    """Returns what replaces the picture before; what does not fit the terminal is left out, as a scroll would spoil it."""
    columns, rows = shutil.get_terminal_size()
    lines = [line[at : at + columns] for line in text.splitlines() for at in range(0, max(1, len(line)), columns)]
    return _HOME + "".join(line + _END_OF_LINE for line in lines[: rows - 1]) + _BELOW
