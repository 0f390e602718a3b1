"""Tests which actors count in the bottleneck, and how."""

from __future__ import annotations

from learner.service.ingest.session import ActorSession
from learner.service.ingest.times import WAIT_REASONS, ActorTimes
from learner.service.run.scrape import STALE_SECONDS, actors_seen
from learner.service.view.bottleneck import ActorShare
from tests.learner.service.ingest.parts import Parts


def say(parts: Parts, session: ActorSession, wall_seconds: float, credit_seconds: float) -> None:
    """Sends an actor's report."""
    waits = dict.fromkeys(WAIT_REASONS, 0.0) | {"credit": credit_seconds}
    session.times.add(ActorTimes(wall_seconds, waits, 0.25), parts.now)


def acting(parts: Parts, name: str) -> ActorSession:
    """Returns an actor that waits a quarter of its time."""
    session = parts.open(name).session
    parts.declared(session)
    say(parts, session, 2.0, 0.0)
    say(parts, session, 4.0, 0.5)
    return session


def test_actors_that_train_and_report_count() -> None:
    """Actors without a behavior are left out, and those without time reports count as silent."""
    parts = Parts()
    acting(parts, "first")
    parts.declared(parts.open("of an older release").session)
    parts.open("just come")
    seen = actors_seen(parts.sessions, parts.behaviors)
    waits = dict.fromkeys(WAIT_REASONS, 0.0) | {"credit": 0.25}
    assert seen.shares == (ActorShare(waits, takes_turns=True, round_trip_seconds=0.25),)
    assert seen.silent == 1


def test_what_was_said_long_ago_does_not_count() -> None:
    """An actor whose last report is old counts as silent."""
    parts = Parts()
    session = acting(parts, "first")
    parts.now += STALE_SECONDS + 1.0
    assert actors_seen(parts.sessions, parts.behaviors).silent == 1
    say(parts, session, 14.0, 0.5)
    assert len(actors_seen(parts.sessions, parts.behaviors).shares) == 1


def test_actors_of_a_finished_behavior_do_not_count() -> None:
    """Actors of a finished behavior do not count."""
    parts = Parts()
    session = acting(parts, "first")
    parts.trainers.finish(next(iter(session.accounts)))
    assert actors_seen(parts.sessions, parts.behaviors) == type(actors_seen(parts.sessions, parts.behaviors))()
