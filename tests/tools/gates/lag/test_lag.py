"""Tests the parts of the lag gate, and that appo learns from steps of eight versions ago."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from learner.buffers.columns import LOG_PROB
from learner.trainers.ppo.trainer import PPOTrainer
from tests.learner.trainers.in_process import make_bench
from tests.learner.trainers.started import feed, make_kind
from tests.learner.trainers.synthetic import HYBRID, SyntheticActor
from tests.tools.gates.catalog import GATES
from tests.tools.gates.lag.actor import Delayed, LaggingActor
from tests.tools.gates.lag.control import RecomputingPPO
from tests.tools.gates.lag.training import LAG, train_appo

(GATE,) = (gate for gate in GATES if gate.name == "lag")


def test_the_actor_acts_with_the_policy_of_so_many_versions_ago() -> None:
    """Every step is of the version that was the newest a lag before, except for the first ones."""
    bench = make_bench(
        {"trainer_type": "ppo", "hyperparameters": {"buffer_size": 100, "batch_size": 50}, "time_horizon": 8},
        max_policy_lag=32,
    )
    bench.published = delayed = Delayed(3)
    trainer = PPOTrainer(bench.context())
    trainer.start()
    actor = LaggingActor(bench, delayed, seed=1)
    lags: dict[int, float] = {}
    while trainer.version < 12:
        actor.run(40)
        trainer.advance()
        lags.setdefault(trainer.version - 1, trainer.numbers.get("mean_lag", 0.0))
    assert all(3 <= lag <= 4 for version, lag in lags.items() if version > 5)
    assert all(lag <= version for version, lag in lags.items() if version >= 0)
    assert trainer.numbers["log_prob_error_max"] == 0.0  # nothing is of the version that is updated


def test_the_control_replaces_what_was_recorded() -> None:
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
    plan = buffer.plan()
    recorded = buffer.ring.storage[LOG_PROB].index_select(0, plan.step_rows)
    trainer._recompute()
    now = buffer.ring.storage[LOG_PROB].index_select(0, plan.step_rows)
    assert not torch.allclose(recorded, now, atol=1e-3)
    log_ratio = trainer._maker._log_ratio(
        plan, buffer.ring.storage, trainer._maker.recorded(plan, buffer.ring.storage, 1)
    )
    assert log_ratio.abs().max() < 1e-4


@pytest.mark.slow
def test_appo_learns_from_steps_of_eight_versions_ago(tmp_path: Path) -> None:
    """The return grows from about 20 to over 100; the whole gate is `make gates GATES=lag`."""
    arm = replace(GATE.arms[0], budget_steps=60_000, target=100.0)
    trained = train_appo(arm, 1, tmp_path / "run")
    assert trained.stop_reason == "target_return"
    assert trained.lag is not None
    assert LAG <= trained.lag <= LAG + 1
    assert trained.curve[-1][1] >= 100.0
