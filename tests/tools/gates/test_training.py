"""Tests a gate with real processes and a played model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.gates import cli
from tests.tools.gates.gate import SHIPPED, Arm, Gate
from tests.tools.gates.rules import at_least, greedy
from tests.tools.gates.training import train

pytestmark = pytest.mark.slow


def arm(**changes: object) -> Arm:
    """Returns a training of a few seconds."""
    settings = ("hyperparameters.buffer_size=512", "hyperparameters.num_epoch=1")
    known = {"settings": settings, "env": "CartPole-v1", "actors": 1, "envs": 4, "greedy_episodes": 3}
    return Arm("ppo", SHIPPED / "cartpole.yaml", budget_steps=1200, **{**known, **changes})  # type: ignore[arg-type]


def test_a_gate_is_trained_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Learner and actor run to the budget, the model plays, and the file has the results."""
    rule = at_least("ppo", 1000.0, greedy, "greedy", far_off=0.0)
    gate = Gate("small", "CartPole", "the impossible", (arm(),), rule, seeds=(5,))
    assert cli._run_all([gate], tmp_path) == 1
    (run,) = json.loads((tmp_path / "small.json").read_text())["arms"]["ppo"]
    assert (run["seed"], run["stop_reason"]) == (5, "max_steps")
    assert run["steps"] >= 1200
    assert run["optimizer_steps"] >= 2
    assert len(run["greedy"]) == 3
    assert run["curve"][-1][0] >= 1000
    assert run["curve"][-1][1] >= 8.0
    assert all(score >= 8.0 for score in run["greedy"])
    assert "short in the median" in capsys.readouterr().out


def test_a_run_that_cannot_start_is_a_failure_that_says_why(tmp_path: Path) -> None:
    """The message of a run that cannot start has the learner's error."""
    with pytest.raises(MeasurementFailed, match="unknown key"):
        train(arm(settings=("hyperparameters.no_such_key=1",)), 1, tmp_path / "run")


def test_an_actor_that_fails_is_not_waited_for(tmp_path: Path) -> None:
    """An actor that fails ends the training immediately."""
    with pytest.raises(MeasurementFailed, match=r"actor 0 ended with exit status 11[^$]*NoSuch-v0"):
        train(arm(env="NoSuch-v0"), 1, tmp_path / "run")
