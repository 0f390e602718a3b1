"""Counters of an actor: plain numbers, so that counting is cheap.

Only one thread writes each number, so no lock is needed; readers see each number whole. Prometheus' client library is
loaded only if metrics are served (`actor_client.metrics`).
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

from rollcast.enums import SegmentEnd
from rollcast.v1 import session_pb2

STEP_SECONDS: Final = (1e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 5e-2, 0.1, 1.0)
NETWORK_SECONDS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
BATCH_AGENTS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)

MAX_ERROR_CHARACTERS: Final = 400
"""Most characters of the newest failure in the report to the learner."""
OTHER: Final = "other"
"""The word for everything that these lists do not contain."""
WAIT_REASONS: Final = ("credit", "hold", "policy", "connection")
EPISODE_ENDS: Final = ("terminated", "truncated", "env_error")
DROP_REASONS: Final = ("generation", "session_lost", "too_large", "outage_full", OTHER)
RECONNECT_REASONS: Final = (
    *("unavailable", "deadline_exceeded", "internal", "draining", "session_expired", "session_fenced"),
    *("stream_superseded", "sequence_gap", "too_many_sessions", OTHER),
)


class Histogram:
    """A histogram that one thread updates.

    Args:
        bounds: Upper bounds of the buckets, ascending.

    Attributes:
        bounds: Upper bounds of the buckets, ascending.
        counts: Number of values in each bucket; one more entry than bounds.
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
    """Counters of the stepping thread; `hanging` belongs to the thread that watches it.

    Attributes:
        env_steps: Environment steps, ignored ones included.
        episodes: Ended episodes by their kind of end.
        env_failures: Number of failures after which environments or players were remade.
        env_error: The newest failure in one line; empty before the first.
        env_discarded_steps: Recorded steps discarded because of failures.
        hanging: The call that has not returned for a while, in words, and its seconds; None if there is none.
        env_step_seconds: Seconds that one step of all environments takes, sampled.
        act_seconds: Seconds of the policy, sampled.
        record_seconds: Seconds of recording, sampled.
        wait_seconds: Seconds without steps, by reason, the present wait excluded.
        waiting: Reason of the present wait, and its start in monotonic seconds; None if there is none.
        chunks_built: Chunks sealed.
        chunks_dropped: Sealed chunks that were not sent, by reason.
        swaps: Policies that began to act.
        swapped_at: Time of the last swap, in seconds since the epoch; 0 before the first.
    """

    def __init__(self) -> None:
        self.env_steps = 0
        self.episodes = dict.fromkeys(EPISODE_ENDS, 0)
        self.env_failures = 0
        self.env_error = ""
        self.env_discarded_steps = 0
        self.hanging: tuple[str, float] | None = None
        self.env_step_seconds = Histogram(STEP_SECONDS)
        self.act_seconds = Histogram(STEP_SECONDS)
        self.record_seconds = Histogram(STEP_SECONDS)
        self.wait_seconds = dict.fromkeys(WAIT_REASONS, 0.0)
        self.waiting: tuple[str, float] | None = None
        self.chunks_built = 0
        self.chunks_dropped = dict.fromkeys(DROP_REASONS, 0)
        self.swaps = 0
        self.swapped_at = 0.0

    def env_failed(self, error: str) -> None:
        """Counts a failure of environments or of a player.

        Args:
            error: The failure, in one line.
        """
        self.env_failures += 1
        self.env_error = error[:MAX_ERROR_CHARACTERS]

    def environment_report(self) -> session_pb2.EnvironmentReport:
        """Returns the state of the environments for the learner; any thread may call it."""
        hanging, seconds = self.hanging or ("", 0.0)
        return session_pb2.EnvironmentReport(
            failures=self.env_failures, error=self.env_error, hanging=hanging, hanging_seconds=seconds
        )

    def ended(self, ends: Sequence[int]) -> None:
        """Counts finished episodes by their `SegmentEnd`."""
        terminated = sum(end == SegmentEnd.TERMINATED for end in ends)
        self.episodes["terminated"] += terminated
        self.episodes["truncated"] += len(ends) - terminated

    def waited(self, until: float) -> None:
        """Ends the present wait."""
        if self.waiting is not None:
            reason, begun = self.waiting
            self.waiting = None  # first: a reader may miss the wait for a moment, but never sees it twice
            self.wait_seconds[reason] += until - begun

    def wait_seconds_at(self, now: float) -> dict[str, float]:
        """Returns the seconds without steps by reason, the present wait included; any thread may call it."""
        seconds, waiting = dict(self.wait_seconds), self.waiting
        if waiting is not None:
            reason, begun = waiting
            seconds[reason] += max(0.0, now - begun)
        return seconds

    @property
    def waited_seconds(self) -> float:
        """Total seconds without steps because of the learner."""
        return sum(self.wait_seconds.values())


class AgentCounts:
    """Counters of the loop of agents that come and go, in addition to `RolloutCounts`.

    Attributes:
        batch_agents: Agents per run of a policy.
        faulty_agents: Agents whose observations or rewards held numbers that were not finite.
        resets: Number of resets of simulators.
    """

    def __init__(self) -> None:
        self.batch_agents = Histogram(BATCH_AGENTS)
        self.faulty_agents = 0
        self.resets = 0


class ConnectionCounts:
    """Counters of the connection's thread.

    Attributes:
        chunks_sent: Chunks written to a stream, resent ones included.
        sent_bytes: Encoded bytes of these chunks.
        chunks_acked: Chunks that the learner settled.
        chunks_dropped: Chunks dropped by the connection, by reason.
        round_trip_seconds: Seconds from writing a chunk to its ack.
        newest_round_trip_seconds: Round trip of the newest acked chunk, in seconds; None before the first.
        reconnects: Breaks of the connection, by reason.
        policies_bad: Policies whose bytes did not match their header.
        policies_unusable: Policies that could not be loaded, or could not act on the observations.
        policies_superseded: Policies that a newer one replaced before they acted.
        policy_fetch_seconds: Seconds from a policy's header until it can act.
    """

    def __init__(self) -> None:
        self.chunks_sent = 0
        self.sent_bytes = 0
        self.chunks_acked = 0
        self.chunks_dropped = dict.fromkeys(DROP_REASONS, 0)
        self.round_trip_seconds = Histogram(NETWORK_SECONDS)
        self.newest_round_trip_seconds: float | None = None
        self.reconnects = dict.fromkeys(RECONNECT_REASONS, 0)
        self.policies_bad = 0
        self.policies_unusable = 0
        self.policies_superseded = 0
        self.policy_fetch_seconds = Histogram(NETWORK_SECONDS)


def count(counts: dict[str, int], word: str, number: int = 1) -> None:
    """Counts under a word, or under `OTHER` for a word that is not in the list, to bound the number of time series."""
    counts[word if word in counts else OTHER] += number
