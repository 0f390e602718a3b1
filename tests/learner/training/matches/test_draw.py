"""Tests the draws of opponents."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.matches.draw import Random, draw, pfsp_weights
from learner.training.matches.fixed import FixedOpponent
from learner.training.matches.league import League
from learner.training.matches.rating import Results

from .policies import key


def league(**settings: object) -> League:
    """Returns the league of a behavior with four snapshots."""
    found = League("Game", SelfPlaySettings.model_validate({"window": 4, **settings}))
    for version in range(4):
        found.save(key(version), version)
    return found


def drawn(of: League, draws: int = 4000) -> Counter[int | str | None]:
    """Returns how often each snapshot and each frozen opponent is drawn; None for the newest policy."""
    random = Random(1)
    found = (draw(of, random.next()) for _ in range(draws))
    return Counter(
        None if each is None else each.name if isinstance(each, FixedOpponent) else each.number for each in found
    )


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_the_newest_policy_has_its_share(ratio: float) -> None:
    """The newest policy is drawn with the given probability, and the snapshots share the rest equally."""
    counts = drawn(league(play_against_latest_model_ratio=ratio))
    assert counts[None] / 4000 == pytest.approx(ratio, abs=0.03)
    assert all(counts[number] / 4000 == pytest.approx((1 - ratio) / 4, abs=0.03) for number in range(4))


def test_pfsp_prefers_the_opponents_that_win() -> None:
    """With pfsp, opponents that beat the learning team are drawn more often, and all others sometimes."""
    of = league(play_against_latest_model_ratio=0.0, draw="pfsp")
    of.against = {0: Results(wins=18), 1: Results(losses=18), 2: Results(draws=18)}
    counts = drawn(of)
    assert counts[1] > 2 * counts[2] > 4 * counts[0] > 0
    assert counts[2] == pytest.approx(counts[3], rel=0.2)


def test_frozen_opponents_have_their_share() -> None:
    """Frozen opponents play with their ratio, alike or by win rate; all others share the rest as without them."""
    of = league(play_against_latest_model_ratio=0.5, frozen_opponents_ratio=0.4)
    without = drawn(of)
    for name in ("strong", "weak"):
        of.fixed.add_frozen("Game", name, name.encode(), key(0, 0))
    counts = drawn(of)
    assert all(counts[name] / 4000 == pytest.approx(0.2, abs=0.03) for name in ("strong", "weak"))
    assert counts[None] / 4000 == pytest.approx(0.6 * without[None] / 4000, abs=0.03)
    of = league(draw="pfsp", frozen_opponents_ratio=1.0)
    for name, results in (("strong", Results(losses=18)), ("weak", Results(wins=18))):
        of.fixed.add_frozen("Game", name, name.encode(), key(0, 0)).results = results
    counts = drawn(of)
    assert counts["strong"] > 20 * counts["weak"]
    assert counts["strong"] + counts["weak"] == 4000


def test_weights_are_probabilities() -> None:
    """The weights of any results are positive and sum to one."""
    random = np.random.default_rng(0)
    for _ in range(50):
        results = [Results(*random.integers(0, 1000, 3).tolist()) for _ in range(7)]
        weights = pfsp_weights(results)
        assert weights.sum() == pytest.approx(1.0)
        assert (weights > 0).all()


def test_draws_continue_after_a_restart() -> None:
    """A restored sequence yields the generators that the saved one would have yielded."""
    first, second = Random(7), Random(7)
    for _ in range(3):
        first.next()
    second.load_state_dict(first.state_dict())
    assert first.next().random() == second.next().random()
    assert Random(8).next().random() != Random(7).next().random()
