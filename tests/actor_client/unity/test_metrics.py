"""Tests the metrics of players."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from actor_client.counts import AgentCounts
from actor_client.unity.conversation import Conversation, Phase
from actor_client.unity.mailbox import Mailbox
from actor_client.unity.metrics import PlayerMetrics


def test_numbers_of_all_players_are_added_up() -> None:
    """Every phase has a series from the first scrape on, with the sum over players."""
    conversations = [Conversation(worker, Mailbox()) for worker in range(3)]
    counts = AgentCounts()
    registry = CollectorRegistry()
    registry.register(PlayerMetrics(conversations, lambda: counts, lambda: 4))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"rollcast_actor_{name}", labels)

    assert [value("players", phase=phase.name.lower()) for phase in Phase] == [3.0, 0.0, 0.0, 0.0]
    conversations[1].phase = conversations[2].phase = Phase.RUNNING
    for conversation in conversations[1:]:
        conversation.counts.exchanges += 5
        conversation.counts.refused += 1
        conversation.counts.answer_seconds.add(0.002)
        conversation.counts.player_seconds.add(0.5)
    counts.batch_agents.add(8)
    counts.faulty_agents, counts.resets = 2, 3
    assert (value("players", phase="waiting"), value("players", phase="running")) == (1.0, 2.0)
    assert value("player_restarts_total") == 4.0
    assert (value("player_exchanges_total"), value("player_refusals_total")) == (10.0, 2.0)
    assert (value("player_resets_total"), value("player_faulty_agents_total")) == (3.0, 2.0)
    assert value("player_answer_seconds_bucket", le="0.001") == 0.0
    assert value("player_answer_seconds_bucket", le="0.0025") == 2.0
    assert value("player_answer_seconds_sum") == 0.004
    assert value("player_own_seconds_count") == 2.0
    assert value("player_batch_agents_bucket", le="8.0") == 1.0
