"""Trains and plays for some seconds, with real processes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.training.buffers.columns import LOG_PROB
from tests.learner.training.trainers.started import feed, make_kind
from tests.learner.training.trainers.synthetic import HYBRID, SyntheticActor
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.gates import cli
from tests.tools.gates.boards import shogi
from tests.tools.gates.catalog import GATES
from tests.tools.gates.gate import SHIPPED, Arm, Gate
from tests.tools.gates.lag import LAG, RecomputingPPO, train_appo
from tests.tools.gates.rules import at_least, greedy
from tests.tools.gates.training import train
from tests.torch_threads import one_thread

__all__ = ["one_thread"]

SETTINGS = ("hyperparameters.buffer_size=512", "hyperparameters.num_epoch=1")
ARM = Arm("ppo", SHIPPED / "cartpole.yaml", "CartPole-v1", 1200, settings=SETTINGS, actors=1, envs=4, greedy_episodes=3)


def test_a_gate_is_trained_and_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Learner and actor run to the budget, the model plays, and the file has the results."""
    rule = at_least("ppo", 1000.0, greedy, "greedy", far_off=0.0)
    gate = Gate("small", "CartPole", "the impossible", (ARM,), rule, seeds=(5,))
    assert cli._run_all([gate], tmp_path) == 1
    (run,) = json.loads((tmp_path / "small.json").read_text())["arms"]["ppo"]
    assert (run["seed"], run["stop_reason"]) == (5, "max_steps")
    assert run["steps"] >= 1200
    assert run["optimizer_steps"] >= 2
    assert len(run["greedy"]) == 3
    assert run["curve"][-1][0] >= 1000
    assert all(score >= 8.0 for score in run["greedy"])
    assert "short in the median" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": ("hyperparameters.no_such_key=1",)}, "unknown key"),
        ({"env": "NoSuch-v0"}, r"actor 0 ended with exit status 11[^$]*NoSuch-v0"),
    ],
)
def test_a_run_that_cannot_start_is_a_failure_that_says_why(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    """The message has the error of the learner, or of the actor, which is not waited for."""
    with pytest.raises(MeasurementFailed, match=said):
        train(replace(ARM, **changes), 1, tmp_path / "run")


def test_a_trained_policy_plays_against_random_moves(tmp_path: Path) -> None:
    """A few updates of tic_tac_toe are played out in a tournament."""
    (arm,) = shogi().arms
    assert arm.trained_by is not None
    small = replace(arm, run_file=SHIPPED / "connect-four.yaml", env="tic_tac_toe", budget_steps=20_000, envs=32)
    trained = arm.trained_by(small, 1, tmp_path / "run")
    assert trained.steps >= 20_000
    assert 0.3 < trained.against[0] <= 1.0


def test_appo_learns_from_steps_of_eight_versions_ago(tmp_path: Path) -> None:
    """The return grows from about 20 to over 100, and every step is as many versions old as it must be."""
    (gate,) = (gate for gate in GATES if gate.name == "lag")
    trained = train_appo(replace(gate.arms[0], budget_steps=60_000, target=100.0), 1, tmp_path / "run")
    assert trained.stop_reason == "target_return"
    assert trained.lag is not None
    assert LAG <= trained.lag <= LAG + 1
    assert trained.curve[-1][1] >= 100.0


def test_the_control_of_lag_replaces_what_was_recorded() -> None:
    """The control's old log-probabilities are those of the current policy, for every kind of action."""
    bench, trainer = make_kind(
        RecomputingPPO, "ppo", HYBRID, service={"max_policy_lag": 32}, network={"normalize": False}, threaded=True
    )
    actor = SyntheticActor(bench, masked=True)
    old = actor.chunk([20, 20, 10])
    feed(bench, actor, 1, trainer)
    trainer.update_buffer.clear()
    bench.put(old)
    trainer.collect()
    buffer = trainer.update_buffer
    buffer.take(1000)
    plan, storage = buffer.plan(), buffer.ring.storage
    recorded = storage[LOG_PROB].index_select(0, plan.step_rows)
    trainer._recompute()
    assert not torch.allclose(recorded, storage[LOG_PROB].index_select(0, plan.step_rows), atol=1e-3)
    log_ratio = trainer._maker._log_ratio(plan, storage, trainer._maker.recorded(plan, storage, 1))
    assert log_ratio.abs().max() < 1e-4
