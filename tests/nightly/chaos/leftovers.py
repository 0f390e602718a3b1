"""Finds processes that a run left behind, by a mark in their environment."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

MARK = "CHAOS_MARK"


@contextlib.contextmanager
def marked() -> Iterator[str]:
    """Marks the processes that the block starts, and yields the mark."""
    mark = secrets.token_hex(8)
    os.environ[MARK] = mark
    try:
        yield mark
    finally:
        del os.environ[MARK]


def left(mark: str) -> list[str]:
    """Returns the command lines of processes with a mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it ended in the meantime, or is another user's
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                command = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                found.append(f"{folder.name}: {command}")
    return found
