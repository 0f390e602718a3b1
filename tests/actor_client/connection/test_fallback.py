"""Tests the fallback to the previous version when a new one cannot act on the observations."""

from __future__ import annotations

import pytest
from rollcast.v1 import trajectory_pb2
from structlog.testing import capture_logs

from actor_client.connection.behavior import PATIENCE_SECONDS, Fallback
from actor_client.policy.actions import PolicyUnusable
from tests.actor_client.connection.harness import BarePolicy, acting
from tests.actor_client.scripted import ScriptedLearner, wait_until

DIVERGED = PolicyUnusable("policy CartPole version 1 has diverged")


def test_the_version_before_goes_on_until_a_newer_one_comes() -> None:
    """The failed version is reported once and not taken again; the previous one acts until a newer one arrives."""
    with ScriptedLearner() as learner, capture_logs() as logs:
        learner.report_seconds = 0.05
        _go_on(learner)
    assert [(log["reason"], log["action"]) for log in logs if log["event"] == "policy_refused"] == [
        (str(DIVERGED), "continues with version 0, unless it is too old")
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
    """If the previous version fails as well, the actor waits for a newer one and reports that."""
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
    """An actor that needs a newer version ends after a while; time does not count while paused or acting."""
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
    with pytest.raises(PolicyUnusable, match="version 1 has diverged; no newer version arrived within 60 seconds"):
        fallback.wait(is_stranded=True)


def test_a_version_of_another_start_of_the_learner_is_no_help() -> None:
    """A version of an earlier generation cannot take over, because its steps would be refused."""
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
    """Waiting for a version ends the actor only if nothing else holds it."""
    monkeypatch.setattr("actor_client.connection.behavior.PATIENCE_SECONDS", 0.0)
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1)
        actor.take_policy()
        actor.port.refuse(DIVERGED)
        learner.hold(reason, active=True, until_version=1)
        wait_until(lambda: not actor.port.may_step(1))
        if stranded:
            with pytest.raises(PolicyUnusable, match="no newer version arrived"):
                actor.port.take_policy()
        else:
            assert actor.port.take_policy() is None
