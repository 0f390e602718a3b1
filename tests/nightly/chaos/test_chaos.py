"""Tests two minutes of a run with faults; `make chaos` has the whole one."""

from pathlib import Path

import pytest

from tests.nightly.chaos.fleet import MATCH
from tests.nightly.chaos.plan import CUTS, OF_ACTORS, REFERENCE_SECONDS, RESTARTS, What, draw
from tests.nightly.chaos.run import carry_out

SECONDS = 120.0


@pytest.mark.smoke
@pytest.mark.timeout(1200)
def test_a_run_amid_faults(tmp_path: Path) -> None:
    """CartPole and matches of groups are trained amid faults, and the checker accepts the history of every chunk."""
    plan = draw(SECONDS, seed=1)
    report = carry_out(plan, tmp_path, print)
    for name in ("CartPole", MATCH):
        # How many depends on the machine: most of the time a process is down, starts, or waits.
        assert report.summary["behaviors"][name]["env_steps_trained"] > 0
    generations = report.seen.generations
    assert generations == sorted(set(generations))
    assert len(generations) > plan.count(*RESTARTS), "each of them was seen to serve"
    assert report.events["thaw_actor"] == plan.count(What.FREEZE_ACTOR, What.REPLACE_ACTOR)
    assert sum(report.injected.values()) > 0


def test_a_plan_is_drawn_by_its_seed() -> None:
    """Equal seeds give equal plans, all events and stops lie within the time, and the counts are those promised."""
    assert draw(SECONDS, 1) == draw(SECONDS, 1) != draw(SECONDS, 2)
    for seed in range(50):
        plan = draw(REFERENCE_SECONDS, seed)
        assert plan.faults >= 200
        assert plan.kills_of_learner >= 10
        assert plan.count(*OF_ACTORS) >= 20
        assert plan.count(*CUTS) >= 40
        for event in plan.events:
            lasts = plan.frozen_seconds if event.what in {What.FREEZE_ACTOR, What.REPLACE_ACTOR} else 0.0
            assert plan.quiet_seconds < event.at_seconds < plan.seconds - lasts
