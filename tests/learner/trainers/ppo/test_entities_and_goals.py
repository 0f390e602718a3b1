"""Tests training with lists of entities and goals."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec

from learner.observe.stats import StatSummary
from learner.trainers.actor_critic.experience import _BYTES_AT_ONCE, _ROWS_AT_ONCE
from tests.learner.networks.specs import entities, goal, vector
from tests.learner.trainers.started import feed, make
from tests.learner.trainers.synthetic import CONTINUOUS, SyntheticActor

CROWDED = BehaviorSpec(
    "Crowded", (entities(), vector(), entities("others", (3, 2))), ActionSpec(discrete_branches=(3,))
)
AIMED = BehaviorSpec("Aimed", (goal(), vector()), ActionSpec(continuous_size=2))
BOTH = BehaviorSpec("Both", (entities(), vector(), goal()), ActionSpec(1, (2, 3)))
LOSSES = {"Losses/Policy Loss", "Losses/Value Loss"}


class Kept:
    """A writer that keeps values by name."""

    def __init__(self) -> None:
        self.values: dict[str, list[float]] = {}

    def write(self, category: str, summaries: Mapping[str, StatSummary], step: int) -> None:
        """Keeps the values."""
        for name, summary in summaries.items():
            self.values.setdefault(name, []).append(summary.value)

    def write_text(self, category: str, title: str, text: str, step: int) -> None:
        """Does nothing."""

    def restart(self, category: str, step: int) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Does nothing."""


@pytest.mark.parametrize("shared_critic", [False, True])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("spec", [CROWDED, AIMED, BOTH], ids=lambda spec: spec.name)
def test_two_updates_train_every_parameter(spec: BehaviorSpec, layers: int, *, shared_critic: bool) -> None:
    """Every parameter changes, losses are finite, and log-probabilities agree."""
    bench, trainer = make(
        spec, hyper={"shared_critic": shared_critic}, network={"num_layers": layers}, summary_freq=60, threaded=True
    )
    kept = Kept()
    bench.stats._writers.append(kept)
    before = {name: value.clone() for name, value in trainer.network.named_parameters()}
    actor = SyntheticActor(bench)
    for _ in range(2):
        feed(bench, actor, 1, trainer)
        assert trainer.numbers["log_prob_error_max"] < 1e-4
    after = dict(trainer.network.named_parameters())
    assert all(torch.isfinite(value).all() for value in after.values())
    same = [name for name, value in after.items() if torch.equal(value, before[name])]
    assert [name for name in same if not name.endswith("key.bias")] == []  # it adds the same to all scores of a row
    assert kept.values.keys() >= LOSSES
    assert all(np.isfinite(kept.values[name]).all() for name in LOSSES)
    assert bench.ledger.books(spec.name).balanced


def test_long_lists_are_valued_in_small_parts() -> None:
    """Values of long lists are computed in parts that fit the bound."""
    long = BehaviorSpec("Long", (entities(shape=(400, 3)),), ActionSpec(discrete_branches=(2,)))
    _, trainer = make(long)
    rows = trainer._maker._rows_at_once
    scores = 4 * 4 * 400 * 400  # of each head, of which a forward pass has three at once
    assert rows == _BYTES_AT_ONCE // (3 * scores) < _ROWS_AT_ONCE
    _, plain = make(CONTINUOUS)
    assert plain._maker._rows_at_once == _ROWS_AT_ONCE
