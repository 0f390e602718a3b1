"""What a run was made with: Python, packages, machine, and the revisions of the code."""

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
    """Returns the versions that an event of the run's journal shows."""
    return {name: _version(name) for name in ("rollcast", "torch")} | {"python": platform.python_version()}


def versions() -> dict[str, Any]:
    """Returns the versions of everything here, for ``versions.json``.

    ``git`` has the revisions of the checkout that Rollcast runs from and of the folder the learner was started in, where
    these are under git, and whether files differ from them.
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
    """Runs git without anything that a repository's own configuration could start; None where it cannot be run."""
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
