"""Accounts for every step of an actor in one session.

Each step has one state at a time, and at every moment

    produced = open + spooled + discarded{reason} + dropped{reason} + unacked + acked.

*Open* steps are with the recorder, *unacked* ones with the connection, *acked* ones with the learner. *Spooled* ones wait in
chunks without a number for the connection to return. *Discarded* steps were given up while open, *dropped* ones after they
had become part of a chunk.
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rollcast.v1 import session_pb2

from actor_client.counts import ConnectionCounts, RolloutCounts


@dataclass(frozen=True, slots=True)
class BooksView:
    """The books at one moment, in steps."""

    produced: int = 0
    open: int = 0
    discarded: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    unacked: int = 0
    acked: int = 0
    ghost: int = 0
    spooled: int = 0

    @property
    def balanced(self) -> bool:
        """True if every produced step has exactly one state."""
        settled = self.acked + sum(self.discarded.values()) + sum(self.dropped.values())
        return self.produced == self.open + self.spooled + self.unacked + settled

    def __add__(self, other: "BooksView") -> "BooksView":
        return BooksView(
            produced=self.produced + other.produced,
            open=self.open + other.open,
            discarded=_sum(self.discarded, other.discarded),
            dropped=_sum(self.dropped, other.dropped),
            unacked=self.unacked + other.unacked,
            acked=self.acked + other.acked,
            ghost=self.ghost + other.ghost,
            spooled=self.spooled + other.spooled,
        )

    def to_message(self, behavior_index: int, agents: int) -> session_pb2.ActorBooks:
        """Returns the books as a message of a renewal."""
        return session_pb2.ActorBooks(
            behavior_index=behavior_index,
            produced_steps=self.produced,
            open_steps=self.open,
            discarded=[session_pb2.ReasonCount(reason=r, steps=n) for r, n in self.discarded.items()],
            dropped=[session_pb2.ReasonCount(reason=r, steps=n) for r, n in self.dropped.items()],
            unacked_steps=self.unacked,
            acked_steps=self.acked,
            ghost_steps=self.ghost,
            agents=agents,
            spooled_steps=self.spooled,
        )


class Books:
    """The books of one behavior id in one session; the stepping and the connection's thread may use them.

    The stepping thread calls `produced`, `discard` and `seal`; the connection calls all else.

    Args:
        on_given_up: Called with ``discarded`` or ``dropped``, the reason and the steps before they are counted; None for no
            call.
    """

    __slots__ = (
        "_acked",
        "_discarded",
        "_dropped",
        "_ghost",
        "_lock",
        "_on_given_up",
        "_open",
        "_produced",
        "_spooled",
        "_unacked",
    )

    def __init__(self, on_given_up: Callable[[str, str, int], object] | None = None) -> None:
        self._on_given_up = on_given_up
        self._lock = threading.Lock()
        self._produced = 0
        self._open = 0
        self._unacked = 0
        self._acked = 0
        self._ghost = 0
        self._spooled = 0
        self._discarded: dict[str, int] = {}
        self._dropped: dict[str, int] = {}

    def produced(self, steps: int) -> None:
        """Counts recorded steps, which are open."""
        with self._lock:
            self._produced += steps
            self._open += steps

    def discard(self, reason: str, steps: int) -> None:
        """Counts open steps that will never be sent."""
        if self._on_given_up is not None:
            self._on_given_up("discarded", reason, steps)
        with self._lock:
            self._open = _less(self._open, steps, "open")
            self._discarded[reason] = self._discarded.get(reason, 0) + steps

    def seal(self, steps: int) -> None:
        """Counts open steps that entered a chunk; they are then unacked."""
        with self._lock:
            self._open = _less(self._open, steps, "open")
            self._unacked += steps

    def acked(self, steps: int) -> None:
        """Counts unacked steps that the learner has settled."""
        with self._lock:
            self._unacked = _less(self._unacked, steps, "unacked")
            self._acked += steps

    def drop(self, reason: str, steps: int) -> None:
        """Counts unacked steps that were given up."""
        if self._on_given_up is not None:
            self._on_given_up("dropped", reason, steps)
        with self._lock:
            self._unacked = _less(self._unacked, steps, "unacked")
            self._dropped[reason] = self._dropped.get(reason, 0) + steps

    def spool(self, steps: int) -> None:
        """Counts unacked steps that wait for the connection to return."""
        with self._lock:
            self._unacked = _less(self._unacked, steps, "unacked")
            self._spooled += steps

    def unspool(self, steps: int) -> None:
        """Counts spooled steps that are about to be sent; they are then unacked."""
        with self._lock:
            self._spooled = _less(self._spooled, steps, "spooled")
            self._unacked += steps

    def ghost(self, steps: int) -> None:
        """Counts steps of an untrained opponent, which are outside the equation."""
        with self._lock:
            self._ghost += steps

    @property
    def produced_steps(self) -> int:
        """Steps recorded so far, read without the lock."""
        return self._produced

    @property
    def spooled_steps(self) -> int:
        """Steps that wait for the connection to return, read without the lock."""
        return self._spooled

    @property
    def sent_steps(self) -> int:
        """Steps that are neither open nor spooled."""
        with self._lock:
            return self._produced - self._open - self._spooled

    def view(self) -> BooksView:
        """Returns all counters, read at one moment."""
        with self._lock:
            return BooksView(
                produced=self._produced,
                open=self._open,
                discarded=dict(self._discarded),
                dropped=dict(self._dropped),
                unacked=self._unacked,
                acked=self._acked,
                ghost=self._ghost,
                spooled=self._spooled,
            )

    @property
    def balanced(self) -> bool:
        """True if every produced step has exactly one state."""
        return self.view().balanced


def _less(counter: int, steps: int, name: str) -> int:
    """Returns the counter minus the steps.

    Raises:
        ValueError: The steps are negative, or exceed the counter.
    """
    if not 0 <= steps <= counter:
        raise ValueError(f"{steps} steps cannot be subtracted from the {counter} that are {name}; count each step once")
    return counter - steps


def _sum(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    """Returns the sums of both counts by reason."""
    return {reason: first.get(reason, 0) + second.get(reason, 0) for reason in {**first, **second}}


@dataclass(frozen=True, slots=True)
class ActorSnapshot:
    """The state of an actor at one moment.

    Attributes:
        rollout: Counts of the stepping thread.
        connection: Counts of the connection's thread.
        books: Books of all behaviors over the life of the process; the books of each behavior are read at one moment.
        chunks_unacked: Number of unacked chunks.
        spooled_bytes: Bytes of the chunks that wait for the connection to return.
        credit_steps: Steps that may be taken before more credit is needed.
        held: Reasons of the holds that stop the actor.
        is_uploading: The upload stream is open.
        is_subscribed: The policy stream is open.
        policy_version: The acting version; 0 before the first, or for the untrained one.
        rejected: Rows refused by the learner in acks, by reason; they are acked in the books.
    """

    rollout: RolloutCounts = field(default_factory=RolloutCounts)
    connection: ConnectionCounts = field(default_factory=ConnectionCounts)
    books: BooksView = field(default_factory=BooksView)
    chunks_unacked: int = 0
    spooled_bytes: int = 0
    credit_steps: int = 0
    held: frozenset[str] = frozenset()
    is_uploading: bool = False
    is_subscribed: bool = False
    policy_version: int = 0
    rejected: Mapping[str, int] = field(default_factory=dict)
