"""Writes the folder of all runs into the commands that messages print."""

from __future__ import annotations

import shlex
from pathlib import Path


def listing(results_dir: Path) -> str:
    """Returns the command that lists the runs of a folder."""
    return f"rollcast runs{in_results(results_dir)}"


def in_results(results_dir: Path) -> str:
    """Returns the flag that names the folder of all runs, after a space; empty for the folder that commands take without it."""
    return "" if results_dir == Path("results") else f" --results-dir {shlex.quote(str(results_dir))}"
