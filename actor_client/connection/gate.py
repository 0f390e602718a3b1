"""Flow control of one behavior: the learner's credit, and its holds.

Credit is cumulative over the session, so the newest message says everything and a lost or repeated one does no harm.
The connection's thread writes, the stepping thread reads plain attributes before each step; no lock is needed, since
each attribute alone is meaningful and a step too many is covered by the learner's allowance.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rollcast.v1 import trajectory_pb2


@dataclass(frozen=True, slots=True)
class ActiveHold:
    """The learner asks a behavior to wait.

    Attributes:
        reason: Value of `HoldReason`.
        until_version: The hold ends by itself once this version acts; 0 = it does not.
    """

    reason: int
    until_version: int

    def holds(self, acting_version: int) -> bool:
        """Returns whether it keeps this version of the present generation from acting."""
        return not 0 < self.until_version <= acting_version

    @property
    def word(self) -> str:
        """The reason, for logs."""
        return _word(self.reason)


class Gate:
    """Credit and holds of one behavior in one session and generation; it begins with no credit.

    Attributes:
        generation: The learner's present start; a policy of another one must not act.
        steps_through: Produced steps may reach this.
        bytes_through: Bytes of chunks sent may reach this.
        waiting_bytes: Bytes of chunks that were never sent.
        sent_bytes: Bytes of all chunks sent once, resent ones counted once.
        holds: The active holds, replaced whole.
    """

    __slots__ = ("bytes_through", "generation", "holds", "sent_bytes", "steps_through", "waiting_bytes")

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.steps_through = 0
        self.bytes_through = 0
        self.waiting_bytes = 0
        self.sent_bytes = 0
        self.holds: tuple[ActiveHold, ...] = ()

    def grant(self, credit: trajectory_pb2.Credit) -> None:
        """Takes over credit, which never falls."""
        self.steps_through = max(self.steps_through, credit.steps_through)
        self.bytes_through = max(self.bytes_through, credit.bytes_through)

    def set_holds(self, holds: Iterable[trajectory_pb2.Hold]) -> None:
        """Replaces all holds, as the opening of a stream does."""
        self.holds = ()
        for hold in holds:
            self.apply(hold)

    def apply(self, hold: trajectory_pb2.Hold) -> bool:
        """Begins or ends one hold.

        Returns:
            Whether anything changed.
        """
        before = self.holds
        others = tuple(active for active in before if active.reason != hold.reason)
        self.holds = (*others, ActiveHold(hold.reason, hold.until_version)) if hold.active else others
        return self.holds != before

    def has_room(self, produced_steps: int, more_steps: int) -> bool:
        """Returns whether so many more steps fit the credit in steps, and the chunks made so far that in bytes."""
        return (
            produced_steps + more_steps <= self.steps_through
            and self.waiting_bytes + self.sent_bytes < self.bytes_through
        )

    def held(self, acting_version: int) -> bool:
        """Returns whether a hold is active under this version of the present generation."""
        return any(hold.holds(acting_version) for hold in self.holds)

    def admits(self, size_bytes: int) -> bool:
        """Returns whether a chunk of this size may be sent."""
        return self.sent_bytes + size_bytes <= self.bytes_through

    def sealed(self, size_bytes: int) -> None:
        """Counts a chunk that waits to be sent."""
        self.waiting_bytes += size_bytes

    def sent(self, estimated_bytes: int, size_bytes: int) -> None:
        """Counts a chunk that is sent for the first time; its number may have made it a little larger."""
        self.waiting_bytes -= estimated_bytes
        self.sent_bytes += size_bytes


def _word(reason: int) -> str:
    """Returns the name of a HoldReason in lower case; a number for one that this revision does not know."""
    if reason in trajectory_pb2.HoldReason.values():
        return (
            trajectory_pb2.HoldReason.Name(trajectory_pb2.HoldReason.ValueType(reason))
            .removeprefix("HOLD_REASON_")
            .lower()
        )
    return str(reason)
