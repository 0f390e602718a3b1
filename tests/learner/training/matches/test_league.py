"""Tests the opponents of a behavior: snapshots, draws, counters."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from learner.shared.settings.trainer import SelfPlaySettings
from learner.training.matches.elo import WIN, rate
from learner.training.matches.league import Interval, League, pfsp_weights
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
    found = (of.draw(np.random.default_rng([1, number])) for number in range(draws))
    return Counter(None if each is None else each.name or each.player[1] for each in found)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_the_newest_policy_has_its_share(ratio: float) -> None:
    """The newest policy is drawn with the given probability, and the snapshots share the rest equally."""
    counts = drawn(league(play_against_latest_model_ratio=ratio))
    assert counts[None] / 4000 == pytest.approx(ratio, abs=0.03)
    assert all(counts[number] / 4000 == pytest.approx((1 - ratio) / 4, abs=0.03) for number in range(4))


def test_pfsp_prefers_the_opponents_that_win() -> None:
    """With pfsp, opponents that beat the learning team are drawn more often, and all others sometimes."""
    of = league(play_against_latest_model_ratio=0.0, draw="pfsp")
    for number, results in enumerate((Results(wins=18), Results(losses=18), Results(draws=18))):
        of.snapshots[number].results = results
    counts = drawn(of)
    assert counts[1] > 2 * counts[2] > 4 * counts[0] > 0
    assert counts[2] == pytest.approx(counts[3], rel=0.2)


def test_frozen_opponents_have_their_share() -> None:
    """Frozen opponents play with their ratio, alike or by win rate; all others share the rest as without them."""
    of = league(play_against_latest_model_ratio=0.5, frozen_opponents_ratio=0.4)
    without = drawn(of)
    for name in ("strong", "weak"):
        of.add_frozen(name, name.encode(), key(0, 0))
    counts = drawn(of)
    assert all(counts[name] / 4000 == pytest.approx(0.2, abs=0.03) for name in ("strong", "weak"))
    assert counts[None] / 4000 == pytest.approx(0.6 * without[None] / 4000, abs=0.03)
    of = league(draw="pfsp", frozen_opponents_ratio=1.0)
    for name, results in (("strong", Results(losses=18)), ("weak", Results(wins=18))):
        of.add_frozen(name, name.encode(), key(0, 0)).results = results
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


def filled(window: int, saved: int) -> League:
    """Returns a league after a number of snapshots."""
    pool = League("Game", SelfPlaySettings(window=window))
    for version in range(saved):
        pool.save(key(version), 100 * version)
    return pool


@pytest.mark.parametrize("saved", [0, 1, 3, 4, 11])
def test_the_newest_snapshots_stay(saved: int) -> None:
    """A pool holds the newest snapshots, at most `window`, each in a slot of its own."""
    pool = filled(3, saved)
    assert list(pool.snapshots) == list(range(saved))[-3:]
    assert len({id(each.elo) for each in pool.snapshots.values()}) == len(pool.snapshots) == min(saved, 3)
    found = pool.snapshots.items()
    assert all(each.key == key(number) and each.step == 100 * number for number, each in found)
    assert all(each.player == ("Game", number) for number, each in found)


@pytest.mark.parametrize(("before", "after"), [(3, 3), (3, 2), (3, 5)])
def test_a_state_restores_what_fits(before: int, after: int) -> None:
    """A restored pool has the snapshots of the saved one, the newest if its window is smaller, and continues."""
    saved, restored = filled(before, 7), League("Game", SelfPlaySettings(window=after))
    restored.load_state_dict(saved.state_dict())
    found = {number: each.key for number, each in restored.snapshots.items()}
    assert found == dict(list({number: each.key for number, each in saved.snapshots.items()}.items())[-after:])
    restored.save(key(7), 700)
    assert max(restored.snapshots) == 7


def test_lost_policies_leave_the_pool() -> None:
    """Snapshots without a file are removed and returned."""
    pool = filled(3, 3)
    assert pool.discard_lost({key(0), key(2)}) == [key(1)]
    assert list(pool.snapshots) == [0, 2]


@pytest.mark.parametrize(
    "change",
    [
        {"saved": -1},
        {"saved": 2},
        {"snapshots": [{"generation": 1, "version": 1, "sha256": "ab", "step": 0, "number": 0}]},
        {"snapshots": [{"generation": 1, "version": 1, "sha256": "0" * 64, "step": 0, "number": 9}]},
        {"snapshots": None},
    ],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    """A state with impossible values is refused."""
    state = filled(3, 3).state_dict()
    state["pool"] |= change
    with pytest.raises((TypeError, ValueError)):
        filled(3, 0).load_state_dict(state)


def test_intervals_count_from_the_last_time() -> None:
    """An interval is due once its steps have passed, and again after as many more."""
    interval = Interval(100)
    assert [interval.is_due(now) for now in (0, 99, 100)] == [False, False, True]
    interval.restart(130)
    assert not interval.is_due(229)
    restored = Interval(100)
    restored.load_state_dict(interval.state_dict())
    assert restored.is_due(230)
    assert [restored.is_due(now) for now in (60, 159, 160)] == [False, False, True]  # from an earlier checkpoint


def test_ratings_continue() -> None:
    """Restored ratings are the saved ones, of slots too; with another window slots have the current rating."""
    of = filled(3, 4)
    rate(of.elo, WIN, [of.snapshots[2].elo])
    of.save(key(4), 400)
    same, wider = (League("Game", SelfPlaySettings(window=window)) for window in (3, 5))
    for each in (same, wider):
        each.load_state_dict(of.state_dict())
    assert [same.snapshots[n].elo.value for n in (2, 3, 4)] == [of.snapshots[n].elo.value for n in (2, 3, 4)]
    assert of.snapshots[4].elo.value == of.elo.value > 1200.0 > of.snapshots[2].elo.value
    assert {each.elo.value for each in wider.snapshots.values()} == {wider.elo.value} == {of.elo.value}
    with pytest.raises(ValueError, match="values"):
        same.load_state_dict({**of.state_dict(), "elo": {"values": [math.nan]}})


def test_a_game_against_a_replaced_snapshot_changes_the_rating_of_its_slot() -> None:
    """As in ML-Agents, a later snapshot takes over the rating of its slot; the results stay apart."""
    of = filled(3, 3)
    old = of.snapshots[0]
    of.save(key(3), 300)
    rate(of.elo, WIN, [old.elo])
    old.results.add(WIN)
    assert of.snapshots[3].elo.value == 1199.5
    assert of.snapshots[3].results.games == 0
