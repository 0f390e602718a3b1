"""A version that cannot act on what is seen: the one before it goes on, a newer one ends that, and none ends the actor."""

from __future__ import annotations

import pytest
from rollcast.v1 import trajectory_pb2
from structlog.testing import capture_logs

from actor_client.connection.fallback import PATIENCE_SECONDS, Fallback
from actor_client.policy.actions import PolicyUnusable
from tests.actor_client.connection.harness import BarePolicy, acting
from tests.actor_client.scripted import ScriptedLearner, wait_until

DIVERGED = PolicyUnusable("policy CartPole version 1 has diverged")


def test_the_version_before_goes_on_until_a_newer_one_comes() -> None:
    """The refused one is not taken again, the learner is told at once, and it is said once."""
    with ScriptedLearner() as learner, capture_logs() as logs:
        learner.report_seconds = 0.05
        _go_on(learner)
    assert [(log["reason"], log["action"]) for log in logs if log["event"] == "policy_refused"] == [
        (str(DIVERGED), "goes on with version 0, if it still may")
    ]


def _go_on(learner: ScriptedLearner) -> None:
    with acting(learner) as actor:
        learner.publish("CartPole", 1)
        actor.take_policy()
        before = actor.port.refuse(DIVERGED)
        assert before == BarePolicy(1, 0, b"CartPole 0")
        assert actor.port.acting == (1, 0)
        assert actor.port.may_step(1)
        wait_until(lambda: any("has diverged" in report.error for report in learner.session.policies))
        assert learner.session.policies[0].version == 0
        assert actor.port.take_policy() is None

        learner.publish("CartPole", 2)
        assert actor.take_policy().version == 2
        wait_until(lambda: learner.session.policies[0].version == 2)
        assert actor.link.snapshot().connection.policies_unusable == 1


def test_nothing_acts_where_no_version_is_left() -> None:
    """The version before may fail as well: then the actor waits for a newer one, and says what it lacks."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1)
        actor.take_policy()
        actor.port.refuse(DIVERGED)
        assert actor.port.refuse(DIVERGED) is None
        assert (actor.port.may_step(1), actor.port.missing) == (False, "policy")
        assert actor.port.take_policy() is None
        learner.publish("CartPole", 2)
        assert actor.take_policy().version == 2
        assert actor.port.may_step(1)


def test_an_actor_that_only_a_newer_version_could_help_ends_after_a_while() -> None:
    """Time counts only where nothing else holds it: not while a version acts, nor while the run is paused."""
    now = 0.0
    fallback = Fallback(lambda: now)
    old, new = BarePolicy(1, 0), BarePolicy(1, 1)
    fallback.took(old, None)
    fallback.took(new, old)
    assert fallback.refuse(new, DIVERGED) is old
    for _ in range(5):
        now += PATIENCE_SECONDS
        fallback.wait(is_stranded=False)
    now += PATIENCE_SECONDS - 1
    fallback.wait(is_stranded=True)
    now += 1
    with pytest.raises(PolicyUnusable, match="version 1 has diverged; no newer version came within 60 seconds"):
        fallback.wait(is_stranded=True)


def test_a_version_of_another_start_of_the_learner_is_no_help() -> None:
    """Its steps would be refused."""
    fallback = Fallback()
    new = BarePolicy(2, 1)
    fallback.took(new, BarePolicy(1, 7))
    assert fallback.refuse(new, DIVERGED) is None


@pytest.mark.parametrize(
    ("reason", "stranded"), [(trajectory_pb2.HOLD_REASON_UPDATING, True), (trajectory_pb2.HOLD_REASON_PAUSED, False)]
)
def test_a_hold_strands_an_actor_if_it_waits_for_a_version(
    monkeypatch: pytest.MonkeyPatch, reason: trajectory_pb2.HoldReason.ValueType, *, stranded: bool
) -> None:
    """Trainers that wait for their update let no older version act; a run that is paused ends nobody."""
    monkeypatch.setattr("actor_client.connection.fallback.PATIENCE_SECONDS", 0.0)
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1)
        actor.take_policy()
        actor.port.refuse(DIVERGED)
        learner.hold(reason, active=True, until_version=1)
        wait_until(lambda: not actor.port.may_step(1))
        if stranded:
            with pytest.raises(PolicyUnusable, match="no newer version came"):
                actor.port.take_policy()
        else:
            assert actor.port.take_policy() is None
