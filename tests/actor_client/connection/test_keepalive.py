"""Tests connections that die without being closed."""

from __future__ import annotations

import pytest
from rollcast import limits

from tests.actor_client.connection.harness import BarePolicy, acting
from tests.actor_client.connection.proxy import Proxy
from tests.actor_client.scripted import ScriptedLearner, wait_until

PING_BYTES = 9 + 8
"""A frame's head and what a ping carries (RFC 9113, section 6.7)."""


@pytest.fixture
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns settings that probe every second on both sides."""
    monkeypatch.setattr(limits, "KEEPALIVE_SECONDS", 1)
    monkeypatch.setattr(limits, "MIN_PING_INTERVAL_SECONDS", 0)


@pytest.mark.usefixtures("_often")
@pytest.mark.parametrize("stream", ["policy", "upload"])
def test_a_swallowed_stream_is_opened_anew(monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    """A dead stream is detected by keepalive pings and replaced; chunks in flight are sent again and counted once."""
    monkeypatch.setattr(limits, "KEEPALIVE_TIMEOUT_SECONDS", 2)
    with ScriptedLearner() as learner, Proxy(learner.port) as proxy, acting(learner, address=proxy.address) as actor:
        assert learner.lease_seconds > 20
        actor.send(3)
        actor.wait_acked()
        peers = learner.policy_peers if stream == "policy" else learner.upload_peers
        proxy.pair_of(peers[0]).swallowing = True
        learner.publish("CartPole", 1)
        actor.send(4)
        actor.wait_acked()
        assert actor.take_policy() == BarePolicy(1, 1, b"CartPole 1")
        wait_until(lambda: learner.session.epoch >= 2)
        actor.send(5)
        actor.wait_acked()
        assert learner.accepted == {learner.session.session_id: 12}
        assert len(learner.sessions) == 1


@pytest.mark.usefixtures("_often")
def test_a_silent_connection_is_probed_and_kept() -> None:
    """An idle policy stream is probed by pings and stays open."""
    with ScriptedLearner() as learner, Proxy(learner.port) as proxy, acting(learner, address=proxy.address):
        pair = proxy.pair_of(learner.policy_peers[0])
        before = pair.client_bytes
        wait_until(lambda: pair.client_bytes >= before + 3 * PING_BYTES)
        assert learner.session.epoch == 1
        assert len(proxy.pairs) == 2
