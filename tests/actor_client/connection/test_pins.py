"""Pinned versions against a real server: fetched once, and replaced by the newest where they cannot be had."""

from __future__ import annotations

from structlog.testing import capture_logs

from tests.actor_client.connection.harness import BarePolicy, acting
from tests.actor_client.scripted import ScriptedLearner, wait_until


def test_the_newest_version_is_not_fetched_again() -> None:
    """A pinned version that is here already is returned at once."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1)
        newest = actor.take_policy()
        assert actor.port.pinned(1, 1) is newest
        assert actor.port.pinned(0, 1) is newest
        assert not learner.asked_for


def test_another_version_is_fetched_beside_the_newest() -> None:
    """It is None until it is here, then always the same object; the acting policy stays what it was."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 9)
        newest = actor.take_policy()
        learner.keep("CartPole", 4, b"the fourth")
        assert actor.port.pinned(1, 4) is None
        wait_until(lambda: actor.port.pinned(1, 4) is not None)
        assert actor.port.pinned(1, 4) == BarePolicy(1, 4, b"the fourth")
        assert actor.port.pinned(1, 4) is actor.port.pinned(1, 4)
        assert actor.port.policy is newest
        assert [request.version for request in learner.asked_for] == [4]


def test_a_version_that_is_gone_or_unusable_is_replaced_by_the_newest() -> None:
    """Nothing waits for ever: the newest policy stands in, and the log says why."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 9)
        newest = actor.take_policy()
        learner.keep("CartPole", 5, b"unusable")
        with capture_logs() as logs:
            for version in (4, 5):
                wait_until(lambda version=version: actor.port.pinned(1, version) is newest)  # type: ignore[misc]
        reasons = [line["reason"] for line in logs if line["event"] == "pinned_policy_unavailable"]
        assert ["is not held" in reasons[0], "3 inputs" in reasons[1]] == [True, True]


def test_what_a_broken_connection_left_open_is_fetched_by_the_next() -> None:
    """A learner that hangs up while the policy is on its way is asked again."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 9)
        actor.take_policy()
        learner.hang_up()
        assert actor.port.pinned(1, 4) is None
        learner.keep("CartPole", 4, b"the fourth")
        learner.listen()
        wait_until(lambda: actor.port.pinned(1, 4) is not None)
