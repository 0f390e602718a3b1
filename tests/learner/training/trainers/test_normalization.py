"""Tests what running statistics of observations leave out."""

from __future__ import annotations

import numpy as np
import torch

from learner.training.networks.normalizer import WARM_UP_ROWS
from tests.learner.training.trainers.started import feed, make
from tests.learner.training.trainers.synthetic import SyntheticActor


def test_an_infinite_observation_does_not_reach_the_normalizer() -> None:
    """Infinite observations are clamped in the update and left out of the statistics."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    feed(bench, actor, 1, trainer)
    before = trainer.statistics.state_dict()["0"]["mean"].clone()
    chunk = actor.chunk([20] * 4)
    chunk.columns["obs/state"][7, 2] = np.inf
    bench.put(chunk)
    trainer.advance()
    assert trainer.version == 2
    assert trainer.statistics.refused == 1
    assert torch.equal(before, trainer.statistics.state_dict()["0"]["mean"])
    feed(bench, actor, 1, trainer)
    assert not torch.equal(before, trainer.statistics.state_dict()["0"]["mean"])
    assert all(value.isfinite().all() for value in bench.published.state.values())
    assert not bench.ledger.books("Continuous").dropped


def test_extreme_observations_do_not_blind_a_policy() -> None:
    """After two chunks of 9e14 the published policy still tells ordinary observations apart."""
    bench, trainer = make()
    actor = SyntheticActor(bench)
    for _ in range(20):
        bench.put(actor.chunk([20] * 4))
        trainer.advance()
    before, clipped = trainer.statistics.state_dict()["0"], trainer.numbers["observations_clipped"]
    assert before["count"] > WARM_UP_ROWS
    for _ in range(2):
        chunk = actor.chunk([20] * 4)
        chunk.columns["obs/state"][:20] = 9e14
        bench.put(chunk)
        trainer.advance()
    after = trainer.statistics.state_dict()["0"]
    spread = [(each["m2"] / each["count"]).sqrt() for each in (before, after)]
    assert bool((spread[1] < 3 * spread[0]).all())
    assert bool(((after["mean"] - before["mean"]).abs() < spread[0]).all())
    assert trainer.numbers["observations_clipped"] >= clipped + 2 * 20, "the metric counts them"
