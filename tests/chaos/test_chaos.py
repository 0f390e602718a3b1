"""Tests a run of five minutes with faults."""

from pathlib import Path

import pytest

from tests.chaos.fleet import MATCH
from tests.chaos.plan import FROZEN_SECONDS, RESTARTS, What, draw
from tests.chaos.run import TARGET, carry_out

SECONDS = 300.0


@pytest.mark.timeout(3 * SECONDS)
def test_a_run_amid_faults(tmp_path: Path) -> None:
    """CartPole is solved next to matches of groups, with ten restarts of the learner, and the books balance."""
    plan = draw(SECONDS, seed=1)
    assert plan.count(*RESTARTS) == 10
    assert plan.frozen_seconds == FROZEN_SECONDS > plan.lease_seconds
    report = carry_out(plan, tmp_path, print)
    assert report.seen.best_return >= TARGET
    assert report.summary["behaviors"][MATCH]["env_steps_trained"] > 1000
    assert report.seen.ghost_steps > 1000
    generations = report.seen.generations
    assert generations == sorted(set(generations))
    assert len(generations) >= 11, "each of them was seen to serve"
    assert min(report.seen.statuses, report.seen.scrapes) >= SECONDS / 6, "it was looked at all the while"
    assert report.events["thaw_actor"] == plan.count(What.FREEZE_ACTOR, What.REPLACE_ACTOR)


def test_a_plan_is_drawn_by_its_seed() -> None:
    """Equal seeds give equal plans, and all events and stops lie within the time."""
    assert draw(SECONDS, 1) == draw(SECONDS, 1) != draw(SECONDS, 2)
    for seed in range(50):
        plan = draw(SECONDS, seed)
        assert plan.count(*RESTARTS) == 10
        for event in plan.events:
            lasts = FROZEN_SECONDS if event.what in {What.FREEZE_ACTOR, What.REPLACE_ACTOR} else 0.0
            assert 0 < event.at_seconds < SECONDS - lasts
