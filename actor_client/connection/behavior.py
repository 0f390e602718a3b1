"""One declared behavior, as the stepping thread sees it and as the connection keeps it.

A behavior has one gate, one number and one newest policy; each of its teams has a port with its own books and its own
acting policy. The stepping thread's calls are plain reads of attributes that the connection's thread replaces whole.
"""

import time
from dataclasses import dataclass

import structlog
from rollcast import limits
from rollcast.specs import BehaviorSpec
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import session_pb2, trajectory_pb2

from actor_client.connection.books import Books, BooksView
from actor_client.connection.gate import Gate
from actor_client.connection.hub import Hub
from actor_client.connection.window import WINDOW_BYTES, Parcel
from actor_client.counts import count
from actor_client.exits import ActorError, ExitCode
from actor_client.notices import Notices
from actor_client.policy.actions import ActingPolicy
from actor_client.rollout.link import ChunkLimits

# Compression is tried on observations of bytes at least this large: floats do not shrink, small ones do not pay.
COMPRESS_FROM_BYTES = 1024
# The number of a chunk is not known while it waits: five bytes in place of it keep the estimate on the safe side.
PLACEHOLDER_SEQUENCE = 1 << 34
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


class Behavior:
    """What the connection knows of one behavior.

    Args:
        hub: The state of the connection.
        spec: What was declared.

    Attributes:
        index: The learner's number in the present session; -1 before it was declared there.
        gate: Credit and holds in the present session.
        settings: How the learner wants segments.
        newest: The newest policy that was loaded in the present generation.
        policy_error: Why the newest version could not be used; empty if it could.
        pin: A version that was asked for; None if none was.
        ports: One for each team.
    """

    def __init__(self, hub: Hub, spec: BehaviorSpec) -> None:
        self._hub = hub
        self.spec = spec
        self.name = spec.name
        self.index = -1
        self.gate = Gate(0)
        self.settings = session_pb2.DeclareBehaviorResponse()
        self.newest: ActingPolicy | None = None
        self.policy_error = ""
        self.pin: Pin | None = None
        self.ports: tuple[BehaviorPort, ...] = ()
        self._pictures = frozenset(
            prefix + observation.name
            for observation in spec.observations
            if observation.dtype.itemsize == 1 and observation.size_bytes >= COMPRESS_FROM_BYTES
            for prefix in ("obs/", "final_obs/")
        )

    def port(self, team: int, agents: int) -> "BehaviorPort":
        """Returns the port of a team, a new one if there is none, with its number of agents."""
        for port in self.ports:
            if port.team == team:
                port.agents = agents
                return port
        port = BehaviorPort(self._hub, self, team, agents)
        self.ports = (*self.ports, port)
        return port

    @property
    def agents(self) -> int:
        """Agents that act at present, of all teams."""
        return sum(port.agents for port in self.ports)

    @property
    def produced_steps(self) -> int:
        """Steps produced in the present session, of all teams."""
        ports = self.ports
        if len(ports) == 1:
            return ports[0].present_books.produced_steps
        return sum(port.present_books.produced_steps for port in ports)

    def view(self) -> BooksView:
        """Returns the books of the present session, of all teams."""
        return sum((port.present_books.view() for port in self.ports), BooksView())

    def total(self) -> BooksView:
        """Returns the books of all sessions, of all teams, as of one moment."""
        with self._hub.window.lock:
            return sum((port.total() for port in self.ports), BooksView())

    @property
    def has_untaken_policy(self) -> bool:
        """Whether there is a policy that no team acts with."""
        return self.newest is not None and all(port.policy is not self.newest for port in self.ports)

    @property
    def credit_steps(self) -> int:
        """Steps that may be taken before more credit is needed."""
        return max(0, self.gate.steps_through - self.produced_steps)

    @property
    def held(self) -> frozenset[str]:
        """Reasons of the holds that keep any team waiting."""
        versions = [port.acting[1] for port in self.ports]
        return frozenset(
            hold.word for hold in self.gate.holds if any(hold.holds(version) for version in versions or [0])
        )

    def report(self) -> session_pb2.ActorBooks:
        """Returns the books as they travel in renewals."""
        return self.view().to_message(self.index, self.agents)

    def policy_report(self) -> session_pb2.PolicyReport:
        """Returns which policy acts, and why a newer one does not."""
        generation, version = max((port.acting for port in self.ports), default=(0, 0))
        return session_pb2.PolicyReport(
            behavior_index=self.index, generation=generation, version=version, error=self.policy_error
        )

    def encode(self, chunk: Chunk) -> trajectory_pb2.UploadRequest:
        """Returns the message of a chunk, with the counters of the session as they are now."""
        view = self.view()
        chunk.sequence = PLACEHOLDER_SEQUENCE
        chunk.behavior_index = max(self.index, 0)  # -1 between two sessions: then the chunk is dropped, not sent
        chunk.produced_steps = view.produced
        chunk.discarded = dict(view.discarded)
        chunk.ghost_steps = view.ghost
        chunk.agents = self.agents
        run = self._hub.run
        pictures = self._pictures if run is not None and "zstd" in run.column_encodings else frozenset()
        return trajectory_pb2.UploadRequest(chunk=encode_chunk(chunk, compress=pictures))


class BehaviorPort:
    """One behavior id (a behavior and a team); implements `actor_client.rollout.link.BehaviorLink`."""

    def __init__(self, hub: Hub, behavior: Behavior, team: int, agents: int) -> None:
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

    def total(self) -> BooksView:
        """Returns the books of all sessions. Called under the window's lock."""
        books = self._past + self._books.view()
        return books if self._next_books is None else books + self._next_books.view()

    def lose_session(self) -> None:
        """Asks the stepping thread to give up its open rows. Called by the connection, under the window's lock."""
        self._next_books = Books()

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest loaded policy that was not taken yet."""
        newest = self._behavior.newest
        if newest is None or newest is self._acting:
            return None
        self._acting = newest
        self.acting = (newest.generation, newest.version)
        self._hub.rollout.swaps += 1
        self._hub.rollout.swapped_at = time.time()
        return newest

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
            and not any(hold.reason in _PAUSES_ALL for hold in gate.holds)
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
