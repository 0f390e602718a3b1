"""Metrics of Unity players, in addition to those of every actor. See deploy/METRICS.md."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from actor_client.counts import BATCH_AGENTS, STEP_SECONDS, AgentCounts, Histogram
from actor_client.metrics import PREFIX, counter, histogram
from actor_client.unity.conversation import Conversation, Phase

PHASES: Final = tuple(phase.name.lower() for phase in Phase)


@dataclass(frozen=True, slots=True)
class PlayersSnapshot:
    """The state of all players of an actor at one moment.

    Attributes:
        phases: Number of players by the phase of their conversation.
        restarts: Number of restarts.
        exchanges: Number of answered messages.
        refused: Number of refusals.
        answer_seconds: Seconds from a message of agents to its answer.
        player_seconds: Seconds from an answer to the next message.
        batch_agents: Agents per run of a policy.
        faulty_agents: Agents with NaN or infinity.
        resets: Number of resets.
    """

    phases: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(PHASES, 0))
    restarts: int = 0
    exchanges: int = 0
    refused: int = 0
    answer_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_SECONDS))
    player_seconds: Histogram = field(default_factory=lambda: Histogram(STEP_SECONDS))
    batch_agents: Histogram = field(default_factory=lambda: Histogram(BATCH_AGENTS))
    faulty_agents: int = 0
    resets: int = 0


def snapshot(conversations: Sequence[Conversation], counts: AgentCounts, restarts: int) -> PlayersSnapshot:
    """Returns the state of the players now; any thread may call it.

    Args:
        conversations: The conversations with all players.
        counts: The gateway's counts.
        restarts: Number of restarts.
    """
    phases = Counter(conversation.phase.name.lower() for conversation in conversations)
    said = [conversation.counts for conversation in conversations]
    return PlayersSnapshot(
        phases={phase: phases[phase] for phase in PHASES},
        restarts=restarts,
        exchanges=sum(each.exchanges for each in said),
        refused=sum(each.refused for each in said),
        answer_seconds=_sum([each.answer_seconds for each in said]),
        player_seconds=_sum([each.player_seconds for each in said]),
        batch_agents=counts.batch_agents,
        faulty_agents=counts.faulty_agents,
        resets=counts.resets,
    )


def _sum(histograms: Sequence[Histogram]) -> Histogram:
    """Returns the sum of several histograms with the same bounds."""
    merged = Histogram(STEP_SECONDS)
    merged.counts = [sum(counts) for counts in zip(*(histogram.counts for histogram in histograms), strict=True)]
    merged.total = sum(histogram.total for histogram in histograms)
    return merged


class PlayerMetrics(Collector):
    """All metrics of the players of an actor.

    Args:
        read: Makes the snapshot of a scrape; called in the thread that answers it.
    """

    def __init__(self, read: Callable[[], PlayersSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yields all metrics, read at one moment."""
        now = self._read()
        players = GaugeMetricFamily(f"{PREFIX}players", "Players, by phase; closed: left or refused.", labels=["phase"])
        for phase, number in now.phases.items():
            players.add_metric([phase], float(number))
        yield players
        yield counter("player_restarts", "Restarts of players.", now.restarts)
        yield counter("player_refusals", "Players refused because of what they sent.", now.refused)
        yield counter("player_resets", "Resets of players in the middle of a scene.", now.resets)
        yield counter("player_exchanges", "Answered messages of players.", now.exchanges)
        yield histogram(
            "player_answer_seconds",
            "Time from a message with agents to its answer, holds included; the game stands still.",
            now.answer_seconds,
        )
        yield histogram(
            "player_own_seconds", "Time of the game, from an answer to the next message.", now.player_seconds
        )
        yield histogram("player_batch_agents", "Agents in each run of a policy.", now.batch_agents)
        yield counter("player_faulty_agents", "Agents with numbers that were not finite.", now.faulty_agents)
