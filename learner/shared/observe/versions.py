"""Collects the versions behind a run: Python, packages, machine and code revisions."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

VERSIONS_FILE = "versions.json"
_GIT_SECONDS = 5.0


def main_versions() -> dict[str, str | None]:
    """Returns the versions recorded in the run's journal."""
    return {name: _version(name) for name in ("rollcast", "torch")} | {"python": platform.python_version()}


def versions() -> dict[str, Any]:
    """Returns all versions for ``versions.json``.

    ``git`` has the revisions of Rollcast's checkout and of the folder in which the learner was started, if they are
    under git, and whether files differ from them.
    """
    packages = {name: each.version for each in distributions() if (name := each.name)}
    return {
        "rollcast": packages.get("rollcast"),
        "python": platform.python_version(),
        "torch": packages.get("torch"),
        "platform": platform.platform(),
        "machine": {"host": platform.node(), "cpus": os.cpu_count(), "architecture": platform.machine()},
        "executable": sys.executable,
        "git": {"rollcast": _revision(Path(__file__).resolve().parent), "started_in": _revision(Path.cwd())},
        "packages": dict(sorted(packages.items(), key=lambda item: item[0].lower())),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision(folder: Path) -> dict[str, object] | None:
    commit = _git(folder, "rev-parse", "--verify", "HEAD")
    if commit is None or not commit.stdout.strip():
        return None
    changes = _git(folder, "diff-index", "--quiet", "HEAD", "--")
    return {"revision": commit.stdout.strip(), "is_changed": None if changes is None else changes.returncode == 1}


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Runs git without anything that a repository's own configuration could start; returns None if git cannot run."""
    program = shutil.which("git")
    if program is None:
        return None
    command = [program, "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *arguments]
    try:
        return subprocess.run(  # noqa: S603 - git, by its path
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_GIT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
