"""Where the time of an actor goes, as its renewals tell the learner. Measured elsewhere (`actor_client.counts`)."""

import time
from collections.abc import Callable

from rollcast.v1 import session_pb2

from actor_client.counts import ConnectionCounts, RolloutCounts


class SessionTimes:
    """Seconds since the present session began.

    Args:
        rollout: What the stepping thread counts.
        connection: What the connection counts.
        clock: Monotonic seconds.
    """

    def __init__(
        self, rollout: RolloutCounts, connection: ConnectionCounts, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rollout = rollout
        self._connection = connection
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Begins another session."""
        self._begun = self._clock()
        self._waited = self._rollout.wait_seconds_at(self._begun)

    def report(self) -> session_pb2.ActorTimes:
        """Returns the message."""
        now = self._clock()
        waited = self._rollout.wait_seconds_at(now)
        seconds = {reason: max(0.0, total - self._waited[reason]) for reason, total in waited.items()}
        return session_pb2.ActorTimes(
            wall_seconds=now - self._begun,
            credit_seconds=seconds["credit"],
            hold_seconds=seconds["hold"],
            policy_seconds=seconds["policy"],
            connection_seconds=seconds["connection"],
            round_trip_seconds=self._connection.newest_round_trip_seconds,
        )
