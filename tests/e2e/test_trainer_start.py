"""Tests that what surrounds the command `serve` does not reach its trainers' process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from tests.e2e.processes import command_environment
from tests.e2e.runs import small, write_run

PROGRAM = Path(sys.executable).with_name("rollcast")


@pytest.mark.parametrize(("trainers", "restarts"), [(1, 0), (2, 0), (1, 1)])
def test_a_strange_folder_and_environment(trainers: int, restarts: int, tmp_path: Path) -> None:
    """A run starts in a folder with modules of the same names, in a job of torchrun, and without an input."""
    folder = tmp_path / "here"
    (folder / "learner").mkdir(parents=True)
    (folder / "learner" / "__init__.py").touch()
    (folder / "random.py").write_text("raise SystemExit('a module of this folder was imported')")
    run_file = write_run(tmp_path, {"Behavior": small()}, trainers=trainers)
    options = [
        "--address=127.0.0.1:0",
        "--max-wall-seconds=1",
        f"--results-dir={tmp_path}",
        "--run-id=run",
        f"--restarts={restarts}",
    ]
    ranks = {"RANK": "1", "WORLD_SIZE": "4", "PET_NNODES": "2", "GLOO_SOCKET_IFNAME": "no-such-link"}
    done = subprocess.run(
        ["sh", "-c", 'exec "$@" <&-', "sh", PROGRAM, "serve", run_file, *options],
        cwd=folder, env={**command_environment(), **ranks}, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert "trainers_start_again" not in done.stdout + done.stderr
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["stop_reason"] == "max_wall_seconds"
