"""Tiny players for tests, which are shell scripts, and waits for processes."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

SECONDS = 300.0


def script(folder: Path, body: str, name: str = "Build") -> Path:
    """Makes a build that is a shell script."""
    path = folder / f"{name}.x86_64"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def eventually(holds: Callable[[], bool], what: str) -> None:
    """Waits until something holds; how long that takes says nothing."""
    deadline = time.monotonic() + SECONDS
    while not holds():
        assert time.monotonic() < deadline, f"not within {SECONDS} s: {what}"
        time.sleep(0.01)


def is_running(pid: int) -> bool:
    """Returns whether a process runs; one that has ended and is not waited for does not."""
    with suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in {"Z", "X"}
    return False
