"""What passes between the service and the trainers at a behavior's queue: chunks one way, the pace of training the other."""

from __future__ import annotations

from dataclasses import dataclass

from rollcast.enums import HoldReason
from rollcast.trajectories import Chunk


@dataclass(frozen=True, slots=True)
class QueuedChunk:
    """A chunk that was checked and accounted for.

    Attributes:
        chunk: the arrays; they may be read-only views on the bytes of the received message.
        session_id: who sent it.
        actor_index: the sender's place in the run.
        encoded_bytes: its size on the wire, in the currency of credit.
        received_at: monotonic seconds.
    """

    chunk: Chunk
    session_id: str
    actor_index: int
    encoded_bytes: int
    received_at: float

    @property
    def resident_bytes(self) -> int:
        """Memory it holds, in bytes: the arrays after unpacking."""
        return max(self.encoded_bytes, sum(column.nbytes for column in self.chunk.columns.values()))


@dataclass(frozen=True, slots=True)
class Pace:
    """What a trainer tells the service about its appetite. The service turns it into credit and holds.

    Attributes:
        held_steps: steps taken from the queue and neither trained nor dropped yet (staging, ring, update buffer).
        ahead_limit_steps: how many steps may be unsettled at most: queued, held, and granted to actors.
        hold: why actors shall wait, if they shall.
        until_version: with UPDATING: the version that ends the wait; 0 says nothing.
    """

    held_steps: int = 0
    ahead_limit_steps: int = 0
    hold: HoldReason | None = None
    until_version: int = 0
