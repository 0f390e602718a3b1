"""Tests `rollcast compare` on runs of real processes."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.e2e.processes import ROOT, TRACEBACK, Processes, command_environment
from tests.e2e.runs import cartpole, write_run


def test_real_runs_are_compared(processes: Processes, tmp_path: Path) -> None:
    """Three short trainings of processes, two with one configuration, are compared by the installed command."""
    run_file = write_run(tmp_path, {"CartPole": cartpole(max_steps=3000)}, http=False)
    rate = "behaviors.CartPole.hyperparameters.learning_rate=1e-5"
    for run, seed, settings in (("fast-1", "1", ()), ("fast-2", "2", ()), ("slow-1", "1", ("--set", rate))):
        learner = processes.learner(run_file, "--seed", seed, *settings, run=run)
        actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
        assert (learner.wait(), actor.wait()) == (0, 0), learner.said()
    program = Path(sys.executable).with_name("rollcast")
    arguments = ["compare", "fast-1", "fast-2", "slow-1", "--results-dir", str(processes.folder / "results")]
    done = subprocess.run(
        [program, *arguments, "--svg", str(tmp_path / "a.svg")],
        cwd=ROOT, env=command_environment(), capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert TRACEBACK not in done.stderr
    title, _, fast, slow, differs, *_ = done.stdout.splitlines()
    assert title == "CartPole: mean training return at the end of each run"
    assert fast.split()[:2] == ["fast", "2"]
    assert slow.split()[:2] == ["slow-1", "1"]
    assert differs == "  hyperparameters.learning_rate: 0.002 | 1e-05"
    ET.fromstring((tmp_path / "a.svg").read_text())  # noqa: S314 - we wrote it
