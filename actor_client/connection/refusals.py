"""Notices that everything an actor sends is refused for faults of its data: stepping on would be in vain."""

import time
from collections.abc import Iterable, Sequence

from rollcast.v1 import trajectory_pb2

from actor_client.connection.backoff import Clock
from actor_client.connection.verdicts import one_line
from actor_client.connection.window import Parcel
from actor_client.exits import ActorError, ExitCode

# What lies in the data; a chunk that came too late, or after the last update, says nothing about it.
DATA_FAULTS = frozenset({"not_finite", "bad_action", "bad_observation"})
# So many chunks in a row, over so long at least: a fault that passes by itself does not end the actor.
MIN_CHUNKS = 20
MIN_SECONDS = 3.0


class DataRefusals:
    """Counts the settled chunks, in a row, that were refused whole for faults of their data.

    Args:
        clock: Tells how long the row lasts.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._chunks = 0
        self._since = 0.0

    def settled(self, parcels: Iterable[Parcel], rejections: Sequence[trajectory_pb2.Rejection]) -> ActorError | None:
        """Takes over one ack.

        Args:
            parcels: The chunks that it settled.
            rejections: The rows of them that were refused.

        Returns:
            How the actor ends; None if it goes on.
        """
        failure: ActorError | None = None
        by_sequence = {rejection.sequence: rejection for rejection in rejections}
        for parcel in parcels:
            rejection = by_sequence.get(parcel.sequence)
            if not parcel.rows or (rejection is not None and rejection.reason not in DATA_FAULTS):
                continue
            if rejection is None or rejection.steps < parcel.rows:
                self._chunks = 0
                continue
            if not self._chunks:
                self._since = self._clock()
            self._chunks += 1
            if self._chunks >= MIN_CHUNKS and self._clock() - self._since >= MIN_SECONDS:
                failure = self._failure(rejection)
        return failure

    def _failure(self, rejection: trajectory_pb2.Rejection) -> ActorError:
        detail = f" ({one_line(rejection.detail)})" if rejection.detail else ""
        return ActorError(
            ExitCode.DATA_REFUSED,
            f"the learner refused the last {self._chunks} chunks whole, for {rejection.reason}{detail}; "
            "check what the environment returns",
        )
