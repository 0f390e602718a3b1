"""Tests the APPO trainer without the service."""

from __future__ import annotations

from learner.training.trainers.appo.trainer import APPOTrainer
from tests.learner.training.trainers.started import feed, make_kind
from tests.learner.training.trainers.synthetic import SyntheticActor


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
