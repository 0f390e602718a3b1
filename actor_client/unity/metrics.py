"""What Prometheus reads of Unity players, beside what it reads of every actor. See deploy/METRICS.md."""

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from actor_client.metrics import PREFIX, counter, histogram
from actor_client.unity.snapshot import PlayersSnapshot


class PlayerMetrics(Collector):
    """All metrics of the players of an actor.

    Args:
        read: Makes the snapshot of a scrape; called in the thread that answers it.
    """

    def __init__(self, read: Callable[[], PlayersSnapshot]) -> None:
        self._read = read

    def collect(self) -> Iterable[Metric]:
        """Yields everything, all of one moment."""
        now = self._read()
        players = GaugeMetricFamily(f"{PREFIX}players", "Players, by how far they are.", labels=["phase"])
        for phase, number in now.phases.items():
            players.add_metric([phase], float(number))
        yield players
        yield counter("player_restarts", "How often a player was started again.", now.restarts)
        yield counter("player_refusals", "How often a player was refused.", now.refused)
        yield counter("player_resets", "How often a player was told to begin anew.", now.resets)
        yield counter("player_exchanges", "Messages of players that were answered.", now.exchanges)
        yield histogram("player_answer_seconds", "From a message of agents to its answer.", now.answer_seconds)
        yield histogram("player_own_seconds", "From an answer to the player's next message.", now.player_seconds)
        yield histogram("player_batch_agents", "Agents of each run of a policy.", now.batch_agents)
        yield counter("player_faulty_agents", "Agents whose numbers were not finite.", now.faulty_agents)
