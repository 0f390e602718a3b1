"""Who counts in the bottleneck, and how."""

from __future__ import annotations

from learner.ingest.session import ActorSession
from learner.ingest.times import WAIT_REASONS, ActorTimes
from learner.observe.bottleneck import ActorShare
from learner.status.actor_shares import STALE_SECONDS, actors_seen, bottleneck_meter
from tests.learner.ingest.parts import Parts


def say(parts: Parts, session: ActorSession, wall_seconds: float, credit_seconds: float) -> None:
    """An actor reports."""
    waits = dict.fromkeys(WAIT_REASONS, 0.0) | {"credit": credit_seconds}
    session.times.add(ActorTimes(wall_seconds, waits, 0.25), parts.now)


def acting(parts: Parts, name: str) -> ActorSession:
    """An actor that waits a quarter of its time."""
    session = parts.open(name).session
    parts.declared(session)
    say(parts, session, 2.0, 0.0)
    say(parts, session, 4.0, 0.5)
    return session


def test_actors_that_train_and_report_count() -> None:
    """One that has declared nothing is left out; one that does not say how it spends its time is counted as silent."""
    parts = Parts()
    acting(parts, "first")
    parts.declared(parts.open("of an older release").session)
    parts.open("just come")
    seen = actors_seen(parts.sessions, parts.behaviors)
    waits = dict.fromkeys(WAIT_REASONS, 0.0) | {"credit": 0.25}
    assert seen.shares == (ActorShare(waits, takes_turns=True, round_trip_seconds=0.25),)
    assert seen.silent == 1


def test_what_was_said_long_ago_does_not_count() -> None:
    """An actor that hangs or is cut off counts as silent until it reports again."""
    parts = Parts()
    session = acting(parts, "first")
    parts.now += STALE_SECONDS + 1.0
    assert actors_seen(parts.sessions, parts.behaviors).silent == 1
    say(parts, session, 14.0, 0.5)
    assert len(actors_seen(parts.sessions, parts.behaviors).shares) == 1


def test_actors_of_a_finished_behavior_do_not_count() -> None:
    """Where nothing is trained any more, it does not matter how fast actors step."""
    parts = Parts()
    session = acting(parts, "first")
    behavior = parts.behaviors.by_index(next(iter(session.accounts)))
    assert behavior is not None
    parts.behaviors.stop_training(behavior)
    assert actors_seen(parts.sessions, parts.behaviors) == type(actors_seen(parts.sessions, parts.behaviors))()


def test_the_meter_forgets_what_actors_said_before() -> None:
    """The reports of a pause are not held against anybody after it."""
    parts = Parts()
    session = acting(parts, "first")
    bottleneck_meter(parts.sessions, parts.behaviors)._restart()  # as at each change of the state
    assert session.times.wait_share is None
