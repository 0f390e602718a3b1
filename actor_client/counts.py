"""Counters of an actor: plain numbers, so that counting costs next to nothing.

Each number has one thread that writes it, so no lock is needed; whoever reads sees each number whole. Prometheus' client
library is loaded only where somebody asks for metrics (`actor_client.metrics`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from rollcast.enums import SegmentEnd

STEP_SECONDS: Final = (1e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0)
NETWORK_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_AGENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

OTHER: Final = "other"
"""The word that stands for all that these lists do not have."""
WAIT_REASONS: Final = ("credit", "hold", "policy", "connection")
EPISODE_ENDS: Final = ("terminated", "truncated", "env_error")
DROP_REASONS: Final = ("generation", "session_lost", "too_large", OTHER)
RECONNECT_REASONS: Final = (
    *("unavailable", "deadline_exceeded", "internal", "draining", "session_expired", "session_fenced"),
    *("stream_superseded", "sequence_gap", "too_many_sessions", OTHER),
)


class Tally:
    """A histogram that one thread fills.

    Args:
        bounds: Upper bounds of the buckets, ascending.

    Attributes:
        bounds: The same.
        counts: Values of each bucket; one more than there are bounds.
        total: Sum of all values.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, value: float) -> None:
        """Counts a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class RolloutCounts:
    """Counters of the stepping thread.

    Attributes:
        env_steps: Environment steps taken, ignored ones included.
        episodes: Ended, by how.
        env_failures: How often the environments were remade.
        env_step_seconds: Of the environments, for one step of all, sampled.
        act_seconds: Of the policy, likewise.
        record_seconds: Of recording, likewise.
        wait_seconds: Time not stepped, by reason; of a wait that goes on, nothing yet.
        waiting: Reason of the wait that goes on, and when it began in monotonic seconds; None while there is none.
        chunks_built: Chunks sealed.
        chunks_dropped: Of them, not put on their way, by reason.
        swaps: Policies that began to act.
        swapped_at: When the last one did, seconds since the epoch; 0 before the first.
    """

    def __init__(self) -> None:
        self.env_steps = 0
        self.episodes = dict.fromkeys(EPISODE_ENDS, 0)
        self.env_failures = 0
        self.env_step_seconds = Tally(STEP_SECONDS)
        self.act_seconds = Tally(STEP_SECONDS)
        self.record_seconds = Tally(STEP_SECONDS)
        self.wait_seconds = dict.fromkeys(WAIT_REASONS, 0.0)
        self.waiting: tuple[str, float] | None = None
        self.chunks_built = 0
        self.chunks_dropped = dict.fromkeys(DROP_REASONS, 0)
        self.swaps = 0
        self.swapped_at = 0.0

    def ended(self, ends: Sequence[int]) -> None:
        """Counts finished episodes by their `SegmentEnd`."""
        terminated = sum(end == SegmentEnd.TERMINATED for end in ends)
        self.episodes["terminated"] += terminated
        self.episodes["truncated"] += len(ends) - terminated

    def waited(self, until: float) -> None:
        """Ends the wait that goes on."""
        if self.waiting is not None:
            reason, begun = self.waiting
            self.waiting = None  # first: a reader may miss the wait for a moment, and never sees it twice
            self.wait_seconds[reason] += until - begun

    def wait_seconds_at(self, now: float) -> dict[str, float]:
        """Returns the time not stepped by reason, the wait that goes on included; from any thread."""
        seconds, waiting = dict(self.wait_seconds), self.waiting
        if waiting is not None:
            reason, begun = waiting
            seconds[reason] += max(0.0, now - begun)
        return seconds

    @property
    def waited_seconds(self) -> float:
        """All time not stepped because of the learner."""
        return sum(self.wait_seconds.values())


class AgentCounts:
    """Counters of the loop of agents that come and go, beside `RolloutCounts`.

    Attributes:
        batch_agents: Agents of each run of a policy.
        faulty_agents: Agents whose observations or rewards held numbers that were not finite.
        resets: How often a simulator was told to begin again.
    """

    def __init__(self) -> None:
        self.batch_agents = Tally(BATCH_AGENTS)
        self.faulty_agents = 0
        self.resets = 0


class ConnectionCounts:
    """Counters of the connection's thread.

    Attributes:
        chunks_sent: Chunks written to a stream, those sent again included.
        sent_bytes: Their encoded size.
        chunks_acked: Chunks that the learner settled.
        chunks_dropped: Given up by the connection, by reason.
        round_trip_seconds: From writing a chunk to its ack.
        newest_round_trip_seconds: The same of the newest chunk; None before the first.
        reconnects: Breaks of the connection, by reason.
        policies_bad: Policies whose bytes were not what their header says.
        policies_unusable: Policies that could not be loaded, or could not act on what was seen.
        policies_superseded: Policies that a newer one replaced before they acted.
        policy_fetch_seconds: From a policy's header to the moment at which it can act.
    """

    def __init__(self) -> None:
        self.chunks_sent = 0
        self.sent_bytes = 0
        self.chunks_acked = 0
        self.chunks_dropped = dict.fromkeys(DROP_REASONS, 0)
        self.round_trip_seconds = Tally(NETWORK_SECONDS)
        self.newest_round_trip_seconds: float | None = None
        self.reconnects = dict.fromkeys(RECONNECT_REASONS, 0)
        self.policies_bad = 0
        self.policies_unusable = 0
        self.policies_superseded = 0
        self.policy_fetch_seconds = Tally(NETWORK_SECONDS)


def count(counts: dict[str, int], word: str, number: int = 1) -> None:
    """Counts under a word, or under `OTHER` if the word is not in the list: words must not make time series."""
    counts[word if word in counts else OTHER] += number
