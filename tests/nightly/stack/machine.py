"""The requirements of the stack's tests: commands, a Docker engine, a copy of what git would clone."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parents[3]
T = TypeVar("T")

NEEDED = ("docker", "docker-compose", "debootstrap", "prometheus", "promtool")


class CommandError(Exception):
    """A command failed; the message has its output."""


def run(
    command: Sequence[str | Path],
    *,
    timeout_seconds: float = 60.0,
    environment: Mapping[str, str] | None = None,
    folder: Path = ROOT,
) -> str:
    """Runs a command and returns its standard output.

    Raises:
        CommandError: It ended with an error.
    """
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=timeout_seconds,
        cwd=folder,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode != 0:
        raise CommandError(
            f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        )
    return done.stdout


def succeeds(command: Sequence[str | Path], *, timeout_seconds: float = 60.0) -> bool:
    """Returns whether a command ends without an error, and in time."""
    try:
        run(command, timeout_seconds=timeout_seconds)
    except (CommandError, OSError, subprocess.TimeoutExpired):
        return False
    return True


def require() -> None:
    """Makes sure that these tests can run here.

    Raises:
        CommandError: Something is missing; the message says what to do.
    """
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        raise CommandError(
            f"{', '.join(missing)} not found; `.ci/install stack` installs what these tests need (as root, on Debian)"
        )
    if not succeeds(["docker", "info"]):
        raise CommandError("no Docker engine answers; `.ci/with-engine COMMAND` starts one (as root)")


def clone(folder: Path) -> None:
    """Copies the files that git tracks, in their current state."""
    for name in run(["git", "ls-files", "-z"]).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)


def wait_until(look: Callable[[], T | None], what: str, *, seconds: float, pause_seconds: float = 1.0) -> T:
    """Returns what a function gives once that is something true.

    Raises:
        AssertionError: It was not within the time.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found:
            return found
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last seen: {found!r}"
        time.sleep(pause_seconds)
