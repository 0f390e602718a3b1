"""Tests the README's commands without make."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT, commands, section


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with this interpreter's virtual environment, unless another one is given."""
    return subprocess.run(
        [sys.executable, str(ROOT / "tasks.py"), *arguments],
        env={**os.environ, "VENV": sys.prefix, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_an_unknown_task_is_answered_with_the_known_ones() -> None:
    """An unknown or missing task is answered with the list of tasks."""
    for arguments in ((), ("no-such-task",)):
        done = run(*arguments)
        assert done.returncode == 1
        assert "test-ci" in done.stderr


@pytest.mark.slow
def test_a_failed_task_ends_with_its_code() -> None:
    """A failed task ends with the exit code of its program."""
    done = run("demo", "--no-such-flag")
    assert done.returncode == 10
    assert "--no-such-flag" in done.stderr


@pytest.mark.slow
def test_the_printed_demo_trains(tmp_path: Path) -> None:
    """The printed `make demo`, which runs the printed `python tasks.py demo`, trains CartPole."""
    (with_make, *_) = commands(section("README.md", "Install"))
    assert with_make == ["make", "demo"]
    assert "python tasks.py demo" in section("README.md", "Install")
    few = ["3", "--results-dir", str(tmp_path), "--http-address", "127.0.0.1:0"]
    few += ["--set", "behaviors.CartPole.max_steps=3000"]
    words = [*with_make, f"PYTHON={sys.executable}", f"SEED={' '.join(few)}"]
    environment = {**os.environ, "VENV": sys.prefix}
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "demo" / "CartPole.onnx").exists()


@pytest.mark.slow
def test_the_checks_and_tests_run() -> None:
    """`python tasks.py test` runs style, imports, pytest and types, as `make test` does."""
    done = run("test", "tests/tools/suite/test_outcome.py", "-k", "flaky_tests_count", WORKERS="0", SUITE="")
    assert done.returncode == 0, done.stdout + done.stderr
    order = ["All checks passed", "already formatted", "0 broken", "1 passed", "no issues found"]
    places = [done.stdout.find(text) for text in order]
    assert places == sorted(places), done.stdout
    assert -1 not in places, done.stdout
