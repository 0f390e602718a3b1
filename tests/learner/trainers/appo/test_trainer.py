"""Tests the APPO trainer without the service."""

from __future__ import annotations

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.common.exits import UserError
from learner.trainers.appo.trainer import APPOTrainer
from tests.learner.trainers.in_process import CARTPOLE
from tests.learner.trainers.started import feed, make, make_kind
from tests.learner.trainers.synthetic import CONTINUOUS, HYBRID, SyntheticActor


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("shared_critic", [False, True])
@pytest.mark.parametrize("spec", [CARTPOLE, CONTINUOUS, HYBRID], ids=lambda spec: spec.name)
def test_every_kind_of_behavior_trains(spec: BehaviorSpec, *, shared_critic: bool, masked: bool) -> None:
    """Updates change the weights, agree with actors, and balance the books."""
    bench, trainer = make_kind(APPOTrainer, "appo", spec, hyper={"shared_critic": shared_critic})
    before = {name: value.clone() for name, value in trainer.network.state_dict().items()}
    feed(bench, SyntheticActor(bench, masked=masked and bool(spec.action.discrete_branches)), 2, trainer)
    assert any(not torch.equal(value, before[name]) for name, value in trainer.network.state_dict().items())
    assert trainer.numbers["log_prob_error_max"] < 1e-4
    assert bench.ledger.books(spec.name).balanced


def test_the_surrogate_is_that_of_ppo() -> None:
    """The loss is PPO's with the joint ratio and recorded log-probabilities."""
    _, trainer = make_kind(APPOTrainer, "appo")
    assert "ppo_loss" in APPOTrainer.loss.__code__.co_names
    assert trainer.hyperparameters.ratio == "joint"


def test_actors_do_not_wait_and_their_steps_may_be_old() -> None:
    """APPO is threaded by default, trains steps of up to 32 versions ago and drops older ones."""
    bench, trainer = make_kind(APPOTrainer, "appo", hyper={"learning_rate": 1e-5})
    assert trainer.threaded
    actor = SyntheticActor(bench)
    feed(bench, actor, 33, trainer)
    before = bench.ledger.books("Continuous").trained
    bench.put(actor.chunk([20, 20], base_version=0))
    bench.put(actor.chunk([20, 20, 20, 20], base_version=1))
    trainer.advance()
    books = bench.ledger.books("Continuous")
    assert trainer.version == 34
    assert books.dropped == {"stale": 40}
    assert books.trained > before
    assert trainer.numbers["mean_lag"] > 20
    assert books.balanced


def test_epsilon_follows_the_steps() -> None:
    """The clipping range falls over max_steps to its minimum."""
    bench, trainer = make_kind(APPOTrainer, "appo", max_steps=120, hyper={"epsilon": 0.3})
    bench.put(SyntheticActor(bench).chunk([20, 20, 20, 10]))
    trainer.advance()
    summary = bench.stats.summary("Policy/Epsilon")
    assert summary is not None
    assert summary.mean == pytest.approx(0.2, rel=0.01)


def test_the_state_of_another_trainer_is_refused() -> None:
    """A checkpoint of ppo is refused, although its networks are equal."""
    _, other = make()
    _, trainer = make_kind(APPOTrainer, "appo")
    with pytest.raises(UserError, match="of trainer ppo, not the format 2 of trainer appo"):
        trainer.load_state_dict(other.state_dict())
