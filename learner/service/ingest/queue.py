"""Stop 6 of a step's path: the service's end of a behavior's queue, which sends chunks to the trainers and counts them.

The chunks wait at the trainers. `learner.link.to_front.Settled` reports which chunks a trainer has taken.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from rollcast.trajectories import Chunk

from learner.link.to_front import Pace
from learner.link.to_trainers import Experience, QueueFull, ToTrainers

Send = Callable[[ToTrainers], object]

UNLIMITED_STEPS: Final = 2**31
UNLIMITED_BYTES: Final = 2**60
"""Credit in a lock-step round, which is limited by its quota instead."""


class QueueFullError(RuntimeError):
    """Raised if a chunk is put although `TrajectoryQueue.has_room` returns False."""


class _Waiting(NamedTuple):
    sequence: int
    steps: int
    resident_bytes: int
    place: int
    principal: str


class TrajectoryQueue:
    """Counts the chunks of a behavior that its trainer has not taken yet. One thread writes, any may read.

    Args:
        behavior_index: Index of the behavior.
        capacity_bytes: Memory for the waiting chunks, in bytes. Credit keeps well-behaved actors below it; above it,
            the service stops reading from the network.
        send: Sends a message to the trainers.
        round_actors: Actors of a lock-step round: rounds, not credit or holds, keep actors from running ahead, and a
            whole round must fit. 0 without lock-step.
        most_steps: Most unsettled steps of one principal, unless its trainer needs more.

    Attributes:
        unsettled: Whose steps wait, also those that the trainer has taken.
        sequence: Sequence of the newest chunk sent; 0 before the first.
        queued_steps: Steps that wait.
        queued_bytes: Memory of the waiting chunks, in bytes.
        pace: The trainer's last pace; in lock-step without its limits, which would keep a round from ending.
        has_pace: True once the trainer has set a pace.
    """

    def __init__(
        self,
        behavior_index: int,
        capacity_bytes: int,
        send: Send,
        *,
        round_actors: int = 0,
        most_steps: int = UNLIMITED_STEPS,
    ) -> None:
        if capacity_bytes <= 0:
            raise ValueError(f"capacity_bytes must be above 0, got {capacity_bytes}")
        self.capacity_bytes = capacity_bytes
        self._behavior_index = behavior_index
        self._send = send
        self._round_actors = round_actors
        self._most_steps = most_steps
        self.unsettled = UnsettledSteps()
        self._waiting: deque[_Waiting] = deque()
        self.sequence = 0
        self.queued_steps = 0
        self.queued_bytes = 0
        self.pace = Pace()
        self.has_pace = False
        self._is_told_full = False

    @property
    def queued_chunks(self) -> int:
        """Number of waiting chunks."""
        return len(self._waiting)

    @property
    def credit_bytes(self) -> int:
        """Memory for which credit may be given, in bytes; unlimited in lock-step."""
        return UNLIMITED_BYTES if self._round_actors else self.capacity_bytes

    def has_room(self, resident_bytes: int, place: int = 0, *, steps: int = 0, principal: str = "") -> bool:
        """Returns whether a chunk may be put; in lock-step, tells the trainers if it may not.

        An empty queue accepts any chunk, so that a large one can pass. Of several principals, each has its equal share of a
        queue that is more than half full, and of more steps than the trainer's limit.

        Args:
            resident_bytes: Memory of the chunk, in bytes.
            place: The sender's place in the run.
            steps: Steps of the chunk.
            principal: The sender's principal; empty if actors are not identified.
        """
        if self._fits(resident_bytes) and (self._round_actors or self._is_fair(resident_bytes, steps, principal)):
            return True
        if not self._round_actors or self._is_told_full:
            return False
        if self._round_actors == 1:
            self._is_told_full = True
            self._send(QueueFull(self._behavior_index, self.queued_bytes, self.capacity_bytes))
            return False
        return self._discard_largest(resident_bytes, place)

    def _fits(self, resident_bytes: int) -> bool:
        return not self._waiting or self.queued_bytes + resident_bytes <= self.capacity_bytes

    def _is_fair(self, resident_bytes: int, steps: int, principal: str) -> bool:
        limit = self.pace.ahead_limit_steps if self.has_pace else UNLIMITED_STEPS
        most_steps = max(self._most_steps, 2 * self.pace.ahead_limit_steps)
        if not self.unsettled.has_room(principal, steps, limit, most_steps):
            return False
        principals = self.unsettled.principals
        if principals == 1 or 2 * (self.queued_bytes + resident_bytes) <= self.capacity_bytes:
            return True
        own_bytes = sum(each.resident_bytes for each in self._waiting if each.principal == principal)
        return not own_bytes or own_bytes + resident_bytes <= self.capacity_bytes // (2 * principals)

    def _discard_largest(self, resident_bytes: int, place: int) -> bool:
        """Lets the trainers leave out the actor that takes most of a full round; returns whether the chunk fits then.

        Its chunks stay in the count of steps until the round ends, because the trainers settle in order.
        """
        held = Counter({place: resident_bytes})
        for waiting in self._waiting:
            held[waiting.place] += waiting.resident_bytes
        largest, largest_bytes = held.most_common(1)[0]
        self._send(QueueFull(self._behavior_index, largest_bytes, self.capacity_bytes, largest))
        self._waiting = deque(
            each._replace(resident_bytes=0) if each.place == largest else each for each in self._waiting
        )
        self.queued_bytes = sum(each.resident_bytes for each in self._waiting)
        return largest != place and self._fits(resident_bytes)

    def put(
        self,
        chunk: Chunk,
        *,
        session_id: str,
        actor_index: int,
        encoded_bytes: int,
        resident_bytes: int,
        received_at: float,
        principal: str = "",
    ) -> None:
        """Sends a chunk to the trainer.

        Args:
            chunk: The arrays.
            session_id: Session of the sender.
            actor_index: The sender's place in the run.
            encoded_bytes: Size on the wire, in bytes.
            resident_bytes: Memory of the arrays, in bytes.
            received_at: When it was received, in monotonic seconds.
            principal: The sender's principal; empty if actors are not identified.

        Raises:
            QueueFullError: There is no room for it; check `has_room` first.
        """
        if not self._fits(resident_bytes):
            raise QueueFullError(
                f"the queue holds {self.queued_bytes} of {self.capacity_bytes} bytes; there is no room for "
                f"{resident_bytes} more"
            )
        self.sequence += 1
        self._waiting.append(_Waiting(self.sequence, chunk.rows, resident_bytes, actor_index, principal))
        self.unsettled.add(session_id, principal, chunk.rows)
        self.queued_bytes += resident_bytes
        self.queued_steps += chunk.rows
        self._send(
            Experience(
                self._behavior_index,
                self.sequence,
                chunk,
                session_id,
                actor_index,
                encoded_bytes,
                received_at,
                principal,
            )
        )

    def settle(self, through: int, pace: Pace) -> None:
        """Stores a trainer's progress.

        Args:
            through: Sequence of the newest chunk that the trainer has taken.
            pace: Pace from now on.
        """
        while self._waiting and self._waiting[0].sequence <= through:
            taken = self._waiting.popleft()
            self.queued_bytes -= taken.resident_bytes
            self.queued_steps -= taken.steps
        if self._round_actors:
            pace = replace(pace, ahead_limit_steps=UNLIMITED_STEPS, hold=None, until_version=0, update_steps=0)
        self.pace, self.has_pace = pace, True


class UnsettledSteps:
    """Unsettled steps of one behavior, by session and by principal.

    Trainers report numbers of steps and not whose they are. They train in the order of arrival but for small differences,
    so the oldest steps count as settled first.

    Attributes:
        total: All unsettled steps.
        members: Sessions of each principal that share the trainer.
    """

    def __init__(self) -> None:
        self.total = 0
        self.members: Counter[str] = Counter()
        self._waiting: deque[tuple[str, str, int]] = deque()
        self._of_session: Counter[str] = Counter()
        self._of_principal: Counter[str] = Counter()

    @property
    def principals(self) -> int:
        """Number of principals that share the trainer, at least one."""
        return max(1, len(self.members))

    def add(self, session_id: str, principal: str, steps: int) -> None:
        """Adds steps that were received."""
        self._waiting.append((session_id, principal, steps))
        self._of_session[session_id] += steps
        self._of_principal[principal] += steps
        self.total += steps

    def settle(self, steps: int) -> None:
        """Removes the oldest steps."""
        while steps and self._waiting:
            session_id, principal, waiting = self._waiting.popleft()
            settled = min(steps, waiting)
            if waiting > settled:
                self._waiting.appendleft((session_id, principal, waiting - settled))
            for counts, key in ((self._of_session, session_id), (self._of_principal, principal)):
                counts[key] -= settled
                if not counts[key]:
                    del counts[key]
            self.total -= settled
            steps -= settled

    def seen_by(self, session_id: str, principal: str, limit: int) -> int:
        """Returns the unsettled steps that count against the credit of a session.

        Above the limit, others count at most with their equal share: of a principal among all principals, and of a session
        among those of its principal. So a session that has less than its own share still gets credit.

        Args:
            session_id: The session.
            principal: Its principal.
            limit: Most steps that may be unsettled.
        """
        if self.total <= limit:
            return self.total
        share = limit // self.principals
        others = sum(min(steps, share) for name, steps in self._of_principal.items() if name != principal)
        own_share = share // max(1, self.members[principal])
        own, mine = self._of_session[session_id], self._of_principal[principal]
        rest = min(mine - own, max(0, share - own_share))
        return own + rest + others

    def has_room(self, principal: str, steps: int, limit: int, most: int) -> bool:
        """Returns whether a principal may add steps; one that has none unsettled always may.

        Args:
            principal: The principal.
            steps: Number of steps.
            limit: Most steps of all principals; above it, none may have more than its equal share.
            most: Most steps of one principal.
        """
        own = self._of_principal[principal]
        if not own:
            return True
        if self.principals > 1 and self.total > limit and own >= limit // self.principals:
            return False
        return own + steps <= most
