"""One behavior id, as the stepping thread sees it: may it step, what acts, and where chunks go.

Its calls are plain reads of attributes that the connection's thread replaces whole.
"""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from rollcast import limits
from rollcast.trajectories import Chunk
from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books, BooksView
from actor_client.connection.fallback import Fallback
from actor_client.connection.gate import Gate
from actor_client.connection.hub import Hub
from actor_client.connection.window import WINDOW_BYTES, Parcel
from actor_client.counts import count
from actor_client.exits import ActorError, ExitCode
from actor_client.notices import Notices
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.rollout.link import ChunkLimits

if TYPE_CHECKING:
    from actor_client.connection.behavior import Behavior

# The recorder keeps chunks within the limit by an estimate. So many in a row over it, and the estimate is wrong.
MAX_TOO_LARGE = 20

_PAUSES_ALL = frozenset(
    {
        trajectory_pb2.HOLD_REASON_PAUSED,
        trajectory_pb2.HOLD_REASON_DRAINING,
        trajectory_pb2.HOLD_REASON_LOCKSTEP,
    }
)
"""Holds that keep an actor from any step; the others ask for no experience at present."""


@dataclass(slots=True, eq=False)
class Pin:
    """A version that the stepping thread has asked for.

    Attributes:
        generation: Of the learner; 0 = the present one.
        version: Of the policy.
        policy: The policy, once it is here.
        is_unavailable: It will never be: the newest one acts in its place.
    """

    generation: int
    version: int
    policy: ActingPolicy | None = None
    is_unavailable: bool = False


class BehaviorPort:
    """One behavior id (a behavior and a team); implements `actor_client.rollout.link.BehaviorLink`."""

    def __init__(self, hub: Hub, behavior: "Behavior", team: int, agents: int) -> None:
        self._hub = hub
        self._behavior = behavior
        self._team = team
        self.agents = agents
        self._notices = Notices()
        self._too_large = 0  # in a row
        self._books = Books()
        self._past = BooksView()  # of all sessions before
        self._next_books: Books | None = None  # of the new session, while the stepping thread still uses the old ones
        self._acting: ActingPolicy | None = None
        self._fallback = Fallback()
        self.acting = (0, 0)

    @property
    def behavior(self) -> str:
        """Its name, without a team."""
        return self._behavior.name

    @property
    def behavior_index(self) -> int:
        """The learner's number of the behavior."""
        return self._behavior.index

    @property
    def time_horizon(self) -> int:
        """Segments are at most this many steps long."""
        return self._behavior.settings.time_horizon

    @property
    def max_policy_lag(self) -> int:
        """A segment is cut before its oldest row is further than this behind the acting version; 0 = no limit."""
        return self._behavior.settings.max_policy_lag

    @property
    def cut_at_swap(self) -> bool:
        """Whether open segments end when the policy is replaced."""
        return self._behavior.settings.cut_at_swap

    @property
    def memory_stride(self) -> int:
        """Memory is recorded every so many rows; 0 = the policy has none."""
        return self._behavior.settings.memory_stride

    @property
    def team(self) -> int:
        """The team that was declared."""
        return self._team

    @property
    def limits(self) -> ChunkLimits:
        """When to send, and how much at most."""
        return self._hub.chunk_limits

    @property
    def books(self) -> Books:
        """The books that the stepping thread counts in; those of the old session until `begin_session`."""
        return self._books

    @property
    def present_books(self) -> Books:
        """The books of the session that the learner knows."""
        return self._next_books or self._books

    @property
    def session_lost(self) -> bool:
        """The learner no longer knows the session; `begin_session` goes over to the new one."""
        return self._next_books is not None

    def begin_session(self) -> None:
        """Goes over to the new session: its books are at zero, and its policy comes anew."""
        with self._hub.window.lock:
            if self._next_books is not None:
                self._past += self._books.view()
                self._books, self._next_books = self._next_books, None
                if self._acting is not self._behavior.newest:
                    self.acting = (0, 0)

    @property
    def policy(self) -> ActingPolicy | None:
        """What acts."""
        return self._acting

    def has_taken(self, policy: ActingPolicy) -> bool:
        """Returns whether a policy acts, or was refused for what it did."""
        return policy is self._acting or policy is self._fallback.refused

    def total(self) -> BooksView:
        """Returns the books of all sessions. Called under the window's lock."""
        books = self._past + self._books.view()
        return books if self._next_books is None else books + self._next_books.view()

    def lose_session(self) -> None:
        """Asks the stepping thread to give up its open rows. Called by the connection, under the window's lock."""
        self._next_books = Books()

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest loaded policy that was not taken yet; raises as `BehaviorLink.take_policy` says."""
        newest = self._behavior.newest
        if newest is None or newest is self._acting:
            return None
        if newest is self._fallback.refused:
            self._fallback.wait(is_stranded=self._is_stranded)
            return None
        self._fallback.took(newest, self._acting)
        self._acting = newest
        self.acting = (newest.generation, newest.version)
        self._hub.rollout.swaps += 1
        self._hub.rollout.swapped_at = time.time()
        return newest

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Returns what acts instead of the policy that acts, which cannot; None until a newer one comes."""
        refused = self._acting
        if refused is None:
            return None
        self._acting = instead = self._fallback.refuse(refused, why)
        self.acting = (0, 0) if instead is None else (instead.generation, instead.version)
        self._hub.call_soon(lambda: self._behavior.refuse(refused, str(why), instead))
        return instead

    @property
    def _is_stranded(self) -> bool:
        """Whether only a newer policy would let it step: the one that acts is none, or too old."""
        hub, gate = self._hub, self._behavior.gate
        if not hub.flowing or self._next_books is not None or _is_paused(gate):
            return False
        generation, version = self.acting
        return generation != gate.generation or gate.held(version)

    def may_step(self, steps: int) -> bool:
        """Returns whether `steps` more may be recorded."""
        hub, behavior = self._hub, self._behavior
        gate = behavior.gate
        generation, version = self.acting
        return (
            hub.flowing
            and generation == gate.generation
            and gate.has_room(behavior.produced_steps, steps)
            and not (gate.holds and gate.held(version))
            and hub.window.unacked_bytes < WINDOW_BYTES
            and self._next_books is None
        )

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns whether steps may be taken that are not recorded."""
        hub, gate = self._hub, self._behavior.gate
        return (
            hub.flowing
            and policy.generation == gate.generation
            and hub.window.unacked_bytes < WINDOW_BYTES
            and self._next_books is None
            and not _is_paused(gate)
        )

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns a version that need not be the newest one; None until it is here."""
        behavior, newest = self._behavior, self._behavior.newest
        for policy in (newest, self._acting):
            if policy is not None and policy.version == version and generation in {0, policy.generation}:
                return policy
        pin = behavior.pin
        if pin is None or (pin.generation, pin.version) != (generation, version):
            behavior.pin = Pin(generation, version)
            self._hub.call_soon(self._hub.pinned.set)
            return None
        return newest if pin.is_unavailable else pin.policy

    @property
    def missing(self) -> str:
        """What `may_step` lacks, in a word of `actor_client.counts.WAIT_REASONS`."""
        hub, gate = self._hub, self._behavior.gate
        generation, version = self.acting
        if not (hub.uploading and hub.flowing) or self._next_books is not None:
            return "connection"
        if self._acting is None or generation != gate.generation:
            return "policy"
        return "hold" if gate.held(version) else "credit"

    def send(self, chunk: Chunk) -> None:
        """Takes over a sealed chunk; counts it as dropped if the learner could not use it any more."""
        hub, behavior, books = self._hub, self._behavior, self._books
        chunk.team = self._team
        request = behavior.encode(chunk)
        hub.rollout.chunks_built += 1
        size_bytes = request.chunk.ByteSize()
        with hub.window.lock:
            reason = self._fault(chunk, size_bytes)
            if reason is None:
                hub.window.put(Parcel(request, behavior.gate, books, chunk.rows, size_bytes))
            else:
                books.drop(reason, chunk.rows)
        if reason is None:
            self._too_large = 0
            hub.wake()
            return
        count(hub.rollout.chunks_dropped, reason)
        if reason == "too_large":
            self._say_too_large(chunk.rows, size_bytes)
        if (left_out := self._notices.due(reason)) is not None:
            structlog.get_logger().info(
                "chunk_dropped", behavior=behavior.name, reason=reason, steps=chunk.rows, left_out=left_out
            )

    def _say_too_large(self, rows: int, size_bytes: int) -> None:
        """Ends the actor if a chunk cannot be made smaller, or none was small enough: it would drop all for ever."""
        hub, name = self._hub, self._behavior.name
        limit_bytes = hub.chunk_limits.max_chunk_bytes
        self._too_large += 1
        if rows == 1 or self._too_large >= MAX_TOO_LARGE:
            failure = _too_large(name, rows, size_bytes, limit_bytes)
            hub.call_soon(lambda: hub.fail(failure))
        elif (left_out := self._notices.due("chunk_too_large")) is not None:
            structlog.get_logger().error(
                "chunk_too_large", behavior=name, size_bytes=size_bytes, limit_bytes=limit_bytes, left_out=left_out
            )

    def _fault(self, chunk: Chunk, size_bytes: int) -> str | None:
        """Returns why a chunk cannot be sent, as a word of the books, or None."""
        if self._next_books is not None:
            return "session_lost"
        if chunk.generation != self._behavior.gate.generation:
            return "generation"
        if size_bytes > self._hub.chunk_limits.max_chunk_bytes:
            return "too_large"
        return None


def _is_paused(gate: Gate) -> bool:
    return any(hold.reason in _PAUSES_ALL for hold in gate.holds)


def _too_large(behavior: str, rows: int, size_bytes: int, limit_bytes: int) -> ActorError:
    """Returns how an actor ends whose steps do not fit the learner's chunks."""
    what = "one step" if rows == 1 else f"each chunk, the last one of {rows} steps,"
    if limit_bytes < limits.MAX_CHUNK_BYTES:
        advice = f"raise it, to {limits.MAX_CHUNK_BYTES} at most, or send smaller observations"
    else:
        advice = "it cannot be larger: send smaller observations"
    return ActorError(
        ExitCode.REFUSED,
        f"{what} of behavior {behavior} takes {size_bytes} bytes, and the learner allows {limit_bytes} "
        f"(rollcast.max_chunk_bytes in its run file); {advice}",
    )
