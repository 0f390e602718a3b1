"""Tests the IMPALA trainer without the service."""

from __future__ import annotations

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.settings.hyperparameters import IMPALAHyperparameters
from learner.trainers.impala.trainer import IMPALATrainer
from tests.learner.trainers.in_process import CARTPOLE
from tests.learner.trainers.started import feed, make_kind
from tests.learner.trainers.synthetic import BRANCHES, CONTINUOUS, HYBRID, SyntheticActor


@pytest.mark.parametrize("ratio", ["joint", "per_action"])
@pytest.mark.parametrize("shared_critic", [False, True])
@pytest.mark.parametrize("spec", [CARTPOLE, CONTINUOUS, BRANCHES, HYBRID], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, ratio: str, *, shared_critic: bool) -> None:
    """Updates change the weights, agree with actors, and balance the books."""
    bench, trainer = make_kind(IMPALATrainer, "impala", spec, hyper={"ratio": ratio, "shared_critic": shared_critic})
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    feed(bench, SyntheticActor(bench), 2, trainer)
    assert any(not torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())
    assert trainer.numbers["log_prob_error_max"] < 1e-4
    assert bench.ledger.books(spec.name).balanced


def test_each_step_is_used_once() -> None:
    """Each step is used once by default, and no epsilon is reported."""
    assert IMPALAHyperparameters().num_epoch == 1
    bench, trainer = make_kind(IMPALATrainer, "impala", hyper={"num_epoch": 1})
    assert trainer.threaded
    feed(bench, SyntheticActor(bench), 1, trainer)
    assert trainer.optimizer_steps == trainer.steps_trained // 16
    assert bench.stats.summary("Policy/Epsilon") is None
    assert bench.stats.summary("Policy/Beta") is not None


def test_the_loss_truncates_where_the_targets_do() -> None:
    """rho_bar truncates the loss as it does the targets."""
    _, trainer = make_kind(IMPALATrainer, "impala", hyper={"rho_bar": 2.0})
    coefficients = trainer._coefficients()
    assert (coefficients.rho_bar, coefficients.epsilon) == (2.0, 0.0)
    assert trainer._targets.rho_bar == 2.0


@pytest.mark.parametrize("rewards", [3e38, 1e38])
def test_an_update_that_is_not_finite_is_undone(rewards: float) -> None:
    """A non-finite update restores weights and version."""
    bench, trainer = make_kind(IMPALATrainer, "impala")
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    chunk = actor.chunk([20] * 4)
    chunk.columns["reward"][:] = rewards
    bench.put(chunk)
    trainer.advance()
    assert trainer.version == 1
    assert bench.ledger.books("Continuous").dropped["not_finite_update"] >= 60
    assert all(torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())
