"""Tests the IMPALA trainer without the service."""

from __future__ import annotations

from learner.shared.settings.hyperparameters import IMPALAHyperparameters
from learner.training.trainers.actor_critic.targets import VTraceTargets
from learner.training.trainers.impala.trainer import IMPALATrainer
from tests.learner.training.trainers.started import feed, make_kind
from tests.learner.training.trainers.synthetic import SyntheticActor


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
    assert trainer.target_rule() == VTraceTargets(0.95, 2.0, 1.0)
