"""Tests the recorded versions of a run."""

import shutil
import subprocess
from pathlib import Path

import pytest

from learner.shared.observe.versions import versions


def git(folder: Path, *arguments: str) -> str:
    """Runs git as a person who has set up nothing."""
    program = shutil.which("git")
    assert program is not None
    who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    done = subprocess.run([program, "-C", folder, *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.slow
def test_the_revision_of_the_users_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit of the working directory is recorded, and whether files differ from it."""
    monkeypatch.chdir(tmp_path)
    assert versions()["git"]["started_in"] is None
    git(tmp_path, "init", "--quiet")
    (tmp_path / "corridor.py").write_text("1")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "-m", "first")
    revision = git(tmp_path, "rev-parse", "HEAD")
    assert versions()["git"]["started_in"] == {"revision": revision, "is_changed": False}
    (tmp_path / "corridor.py").write_text("2")
    assert versions()["git"]["started_in"] == {"revision": revision, "is_changed": True}
