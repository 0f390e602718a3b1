"""Flow control of one behavior: the learner's credit, and its holds.

Credit is cumulative over the session, so only the newest message matters, and lost or repeated ones do no harm. The
connection's thread writes; the stepping thread reads plain attributes before each step. No lock is needed, because each
attribute is meaningful alone and the learner tolerates an extra step.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from rollcast.enums import HoldReason, member
from rollcast.v1 import trajectory_pb2


@dataclass(frozen=True, slots=True)
class ActiveHold:
    """The learner's request to a behavior to wait.

    Attributes:
        reason: Value of `HoldReason`.
        until_version: The version at which the hold ends by itself; 0 = never.
    """

    reason: int
    until_version: int

    def holds(self, acting_version: int) -> bool:
        """Returns whether the hold stops this version of the present generation."""
        return not 0 < self.until_version <= acting_version

    @property
    def word(self) -> str:
        """The reason, for logs: the name of a HoldReason in lower case; its number if this revision does not know it."""
        known = member(HoldReason, self.reason)
        return str(self.reason) if known is None else known.name.lower()


class Gate:
    """Credit and holds of one behavior in one session and generation; it starts without credit.

    Attributes:
        generation: The learner's present start; policies of other starts must not act.
        steps_through: Limit of produced steps.
        bytes_through: Limit of the bytes of sent chunks.
        quota_through: Produced steps after which the actor sends everything and waits; None = no quota.
        waiting_bytes: Bytes of chunks that were never sent.
        sent_bytes: Bytes of all sent chunks; resent ones count once.
        holds: The active holds; always replaced as a whole.
    """

    __slots__ = (
        "bytes_through",
        "generation",
        "holds",
        "quota_through",
        "sent_bytes",
        "steps_through",
        "waiting_bytes",
    )

    def __init__(self, generation: int) -> None:
        self.generation = generation
        self.steps_through = 0
        self.bytes_through = 0
        self.quota_through: int | None = None
        self.waiting_bytes = 0
        self.sent_bytes = 0
        self.holds: tuple[ActiveHold, ...] = ()

    def grant(self, credit: trajectory_pb2.Credit) -> None:
        """Applies credit, which never decreases, and the quota, which may."""
        self.quota_through = credit.quota_through if credit.HasField("quota_through") else None
        self.steps_through = max(self.steps_through, credit.steps_through)
        self.bytes_through = max(self.bytes_through, credit.bytes_through)

    def set_holds(self, holds: Iterable[trajectory_pb2.Hold]) -> None:
        """Replaces all holds, at the opening of a stream."""
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
        """Returns whether more steps fit the credit in steps, and the chunks made so far fit the credit in bytes.

        The steps that reach a quota may exceed it, because all agents take them together.
        """
        quota = self.quota_through
        return (
            produced_steps + more_steps <= self.steps_through if quota is None else produced_steps < quota
        ) and self.waiting_bytes + self.sent_bytes < self.bytes_through

    def has_used_quota(self, produced_steps: int) -> bool:
        """Returns whether the quota, if there is one, is used up."""
        quota = self.quota_through
        return quota is not None and produced_steps >= quota

    def held(self, acting_version: int) -> bool:
        """Returns whether a hold stops this version of the present generation."""
        return any(hold.holds(acting_version) for hold in self.holds)

    def admits(self, size_bytes: int) -> bool:
        """Returns whether a chunk of this size may be sent."""
        return self.sent_bytes + size_bytes <= self.bytes_through

    def sealed(self, size_bytes: int) -> None:
        """Counts a chunk that waits to be sent."""
        self.waiting_bytes += size_bytes

    def sent(self, estimated_bytes: int, size_bytes: int) -> None:
        """Counts a chunk at its first transmission; its number may have made it slightly larger."""
        self.waiting_bytes -= estimated_bytes
        self.sent_bytes += size_bytes
