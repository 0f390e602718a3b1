"""Tests the download of policies from a real server."""

from __future__ import annotations

import threading

import pytest
from rollcast.limits import INLINE_BYTES
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from structlog.testing import capture_logs

from actor_client.connection import downlink
from tests.actor_client.connection.harness import BarePolicy, acting, linked, load
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.protos.builders import CARTPOLE


def test_a_large_policy_comes_whole() -> None:
    """A policy of several frames is reassembled and verified."""
    payload = bytes(range(256)) * 12000
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1, payload=payload)
        assert actor.take_policy().payload == payload


def test_versions_that_come_during_a_load_are_skipped_but_the_newest() -> None:
    """While a policy loads outside the stepping thread, only the newest of the later versions waits."""
    loaded: list[int] = []
    gate = threading.Event()
    threads: set[str] = set()

    def slowly(description: PolicyDescription, payload: bytes, spec: BehaviorSpec) -> BarePolicy:
        threads.add(threading.current_thread().name)
        if description.version == 1:
            gate.wait(20.0)
        loaded.append(description.version)
        return load(description, payload, spec)

    with ScriptedLearner() as learner, acting(learner, load=slowly) as actor:
        for version in range(1, 8):
            learner.publish("CartPole", version)
        actor.send(1)
        actor.wait_acked()  # the connection continues during the load
        assert actor.port.take_policy() is None
        # Versions 2 to 7 arrive one after another, each in place of the one before.
        wait_until(lambda: actor.link.snapshot().connection.policies_superseded >= 5)
        gate.set()
        wait_until(lambda: 7 in loaded)
        assert loaded == [0, 1, 7]
        assert actor.take_policy().version in {1, 7}
        assert threading.current_thread().name not in threads


def test_a_policy_that_stops_halfway_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A learner that sends half of a policy and then nothing is asked again; the old policy acts, and the fault is reported."""
    monkeypatch.setattr(downlink, "FETCH_SECONDS", 1.0)
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1, payload=bytes(3_000_000), most_frames=1)
        wait_until(
            lambda: any("version 1: its next bytes did not come" in each.error for each in learner.session.policies)
        )
        assert actor.port.may_step(1)
        wait_until(lambda: len(learner.subscriptions) >= 2)
        learner.publish("CartPole", 2)
        assert actor.take_policy().version == 2


def test_a_small_policy_comes_in_one_message() -> None:
    """The actor takes a small policy whose bytes come with its header."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.inlines = True
        for version in (1, 2):
            learner.publish("CartPole", version)
            assert actor.take_policy() == BarePolicy(1, version, f"CartPole {version}".encode())
        assert learner.subscriptions[-1].inline_bytes == INLINE_BYTES


@pytest.mark.parametrize("inlines", [False, True])
def test_a_corrupted_policy_is_reported_and_fetched_again(inlines: bool) -> None:
    """A policy with a wrong digest is reported, the previous one keeps acting, and the next valid one replaces it."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.inlines = inlines
        learner.publish("CartPole", 1, corrupt=True)
        wait_until(lambda: any(report.error for report in learner.session.policies))
        report = learner.session.policies[0]
        assert (report.generation, report.version) == (1, 0)
        assert actor.port.take_policy() is None
        assert actor.port.may_step(1)
        learner.publish("CartPole", 2)
        assert actor.take_policy().version == 2
        wait_until(lambda: len(learner.subscriptions) >= 2)
        assert learner.subscriptions[1].held[0].version == 0


def test_an_unusable_policy_is_reported_and_the_old_one_stays() -> None:
    """An error of the loader is reported to the learner until a later version loads."""
    with ScriptedLearner() as learner:
        learner.report_seconds = 0.05
        with acting(learner) as actor:
            learner.publish("CartPole", 1, payload=b"unusable")
            wait_until(lambda: any("3 inputs" in report.error for report in learner.session.policies))
            assert actor.port.take_policy() is None
            assert actor.port.may_step(1)
            learner.publish("CartPole", 2)
            assert actor.take_policy().version == 2
            wait_until(lambda: learner.session.policies[0].version == 2)
            assert learner.session.policies[0].error == ""


def test_policies_of_another_generation_and_older_versions_are_ignored() -> None:
    """Only newer versions of the current generation replace a policy."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 5)
        assert actor.take_policy().version == 5
        learner.generation = 9
        learner.publish("CartPole", 50)
        learner.generation = 1
        learner.publish("CartPole", 4)
        learner.publish("CartPole", 6)
        assert actor.take_policy() == BarePolicy(1, 6, b"CartPole 6")


def test_a_policy_may_come_before_the_answer_to_the_declaration() -> None:
    """A policy that arrives before its behavior is declared waits for the declaration."""
    with ScriptedLearner() as learner, linked(learner) as link:
        link.open(20.0)
        learner.indices["CartPole"] = 0
        wait_until(lambda: bool(learner.subscribers))
        learner.publish("CartPole", 3)
        learner.newest.clear()
        port = link.declare(CARTPOLE, 0, 1, 20.0)
        wait_until(lambda: port.take_policy() is not None)
        assert port.acting == (1, 3)


def test_a_policy_for_another_behavior_under_this_number_is_refused() -> None:
    """A policy whose name and number do not match is refused."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.indices["Pendulum"] = 0
        learner.publish("Pendulum", 9)
        wait_until(lambda: any("Pendulum" in report.error for report in learner.session.policies))
        assert actor.port.take_policy() is None


def test_the_newest_version_is_not_fetched_again() -> None:
    """A pinned version that is already loaded is returned immediately."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 1)
        newest = actor.take_policy()
        assert actor.port.pinned(1, 1) is newest
        assert actor.port.pinned(0, 1) is newest
        assert not learner.asked_for


def test_another_version_is_fetched_beside_the_newest() -> None:
    """Another version is fetched without replacing the acting one, and stays the same object once loaded."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 9)
        newest = actor.take_policy()
        learner.keep("CartPole", 4, b"the fourth")
        wait_until(lambda: actor.port.pinned(1, 4) is not None)
        assert actor.port.pinned(1, 4) == BarePolicy(1, 4, b"the fourth")
        assert actor.port.pinned(1, 4) is actor.port.pinned(1, 4)
        assert actor.port.policy is newest
        assert [request.version for request in learner.asked_for] == [4]


def test_a_version_that_is_gone_or_unusable_is_replaced_by_the_newest() -> None:
    """A pinned version that is gone or unusable is replaced by the newest one, with a line in the log."""
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
    """A fetch that a disconnect interrupts is repeated over the next connection."""
    with ScriptedLearner() as learner, acting(learner) as actor:
        learner.publish("CartPole", 9)
        actor.take_policy()
        learner.hang_up()
        assert actor.port.pinned(1, 4) is None
        learner.keep("CartPole", 4, b"the fourth")
        learner.listen()
        wait_until(lambda: actor.port.pinned(1, 4) is not None)
