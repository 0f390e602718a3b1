"""Metrics of Unity players, in addition to those of every actor. See deploy/METRICS.md."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from prometheus_client import Metric
from prometheus_client.registry import Collector

from actor_client.counts import STEP_SECONDS, AgentCounts, Histogram
from actor_client.metrics import counter, gauges, histogram
from actor_client.unity.conversation import Conversation, Phase


def _sum(histograms: Sequence[Histogram]) -> Histogram:
    """Returns the sum of several histograms with the same bounds."""
    merged = Histogram(STEP_SECONDS)
    merged.counts = [sum(counts) for counts in zip(merged.counts, *(each.counts for each in histograms), strict=True)]
    merged.total = sum(each.total for each in histograms)
    return merged


class PlayerMetrics(Collector):
    """All metrics of the players of an actor.

    Args:
        conversations: The conversations with all players.
        counts: Returns the gateway's counts; called in the thread that answers a scrape, as is the next one.
        restarts: Returns the number of restarts of players.
    """

    def __init__(
        self, conversations: Sequence[Conversation], counts: Callable[[], AgentCounts], restarts: Callable[[], int]
    ) -> None:
        self._conversations = conversations
        self._counts = counts
        self._restarts = restarts

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics, read at one moment."""
        counts, said = self._counts(), [each.counts for each in self._conversations]
        phases = Counter(each.phase for each in self._conversations)
        by_name = {phase.name.lower(): phases[phase] for phase in Phase}
        yield gauges("players", "Players, by phase; closed: left or refused.", "phase", by_name)
        yield counter("player_restarts", "Restarts of players.", self._restarts())
        yield counter(
            "player_refusals", "Players refused because of what they sent.", sum(each.refused for each in said)
        )
        yield counter("player_resets", "Resets of players in the middle of a scene.", counts.resets)
        yield counter("player_exchanges", "Answered messages of players.", sum(each.exchanges for each in said))
        yield histogram(
            "player_answer_seconds",
            "Time from a message with agents to its answer, holds included; the game stands still.",
            _sum([each.answer_seconds for each in said]),
        )
        yield histogram(
            "player_own_seconds",
            "Time of the game, from an answer to the next message.",
            _sum([each.player_seconds for each in said]),
        )
        yield histogram("player_batch_agents", "Agents in each run of a policy.", counts.batch_agents)
        yield counter("player_faulty_agents", "Agents with numbers that were not finite.", counts.faulty_agents)
