"""A run that asks for what no trainer does is refused before it leaves a trace."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

RUN = """
behaviors:
  Pusher:
    trainer_type: ppo
    hyperparameters: {batch_size: 128}
    reward_signals: {curiosity: {}, rnd: {}, gail: {demo_path: d}}
    behavioral_cloning: {demo_path: d}
    self_play: {}
  Team: {trainer_type: poca, self_play: {}}
"""
GROUPED = "behaviors: {Walker: {trainer_type: poca}}\n"


def serve(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Starts a learner on a run file."""
    run_file = tmp_path / "run.yaml"
    run_file.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "learner", "serve", str(run_file), "--results-dir", "results"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip


def test_each_thing_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """One line for each, by its path in the run file; exit code 11; no results folder, no traceback."""
    done = serve(RUN, tmp_path)
    assert done.returncode == 11
    assert not (tmp_path / "results").exists()
    paths = [line.split(":")[0].strip() for line in done.stderr.splitlines()]
    assert paths == [
        "behaviors.Pusher.self_play",
        "behaviors.Team.trainer_type",
        "behaviors.Team.self_play",
        "error",
    ]


def test_trainers_that_are_not_built_are_named(tmp_path: Path) -> None:
    """The run file is right, the trainer is not there: the line says so, and which trainers are."""
    done = serve(GROUPED, tmp_path)
    assert done.returncode == 11
    assert not (tmp_path / "results").exists()
    assert "behaviors.Walker.trainer_type: poca is not built yet; trainers that are: appo" in done.stderr
