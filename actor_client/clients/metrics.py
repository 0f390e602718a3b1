"""Metrics of clients, in addition to those of every actor. See deploy/METRICS.md."""

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.registry import Collector

from actor_client.clients.counts import ClientCounts
from actor_client.clients.gateway import Gateway
from actor_client.counts import AgentCounts
from actor_client.metrics import counter, gauges, histogram


class ClientMetrics(Collector):
    """All metrics of the clients of an actor.

    Args:
        gateway: Returns the gateway; None before it exists. Called in the thread that answers a scrape.
    """

    def __init__(self, gateway: Callable[[], Gateway | None]) -> None:
        self._gateway = gateway

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics, read at one moment."""
        gateway = self._gateway()
        counts, agents = (ClientCounts(), AgentCounts()) if gateway is None else (gateway.counts, gateway.agent_counts)
        yield gauges("clients", "Clients that are connected, by transport.", "transport", dict(counts.connected))
        yield counter("client_departures", "Clients that left or were refused after their hello.", counts.left)
        yield counter(
            "client_refusals",
            "Clients refused because of what they sent, or because there were too many.",
            counts.refused,
        )
        yield counter("client_resets", "Resets of clients in the middle of episodes.", agents.resets)
        yield counter("client_exchanges", "Answered messages of clients.", counts.exchanges)
        yield histogram(
            "client_answer_seconds",
            "Time from a message to its answer, the wait for other clients and holds included.",
            counts.answer_seconds,
        )
        yield histogram(
            "client_own_seconds", "Time of the client, from an answer to its next message.", counts.client_seconds
        )
        yield histogram("client_batch_agents", "Agents in each run of a policy.", agents.batch_agents)
        yield counter(
            "client_faulty_agents", "Agents with numbers that were not finite or too large.", agents.faulty_agents
        )
