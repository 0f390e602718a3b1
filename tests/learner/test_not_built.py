"""Tests that unsupported runs are refused before they write anything."""

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
    behavioral_cloning: {demo_path: d}
    reward_signals: {}
  Team: {trainer_type: poca, self_play: {}, reward_signals: {}}
"""


def serve(text: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    """Starts a learner on a run file."""
    run_file = tmp_path / "run.yaml"
    run_file.write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "learner", "serve", str(run_file), "--results-dir", "results"],
        capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path,
    )  # fmt: skip


def test_each_thing_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    """Each unsupported feature is one line with its path; the exit code is 11, and nothing is written."""
    done = serve(RUN, tmp_path)
    assert done.returncode == 11
    assert not (tmp_path / "results").exists()
    paths = [line.split(":")[0].strip() for line in done.stderr.splitlines()]
    assert paths == [
        "behaviors.Pusher.reward_signals",
        "behaviors.Team.reward_signals",
        "error",
    ]
