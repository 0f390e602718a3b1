"""One declared behavior, as the connection keeps it and as the stepping thread sees it.

A behavior has one gate, one number and one newest policy. Each of its teams has a port with its own books and its own
acting policy. The stepping thread calls only ports, which read attributes that the connection's thread replaces as a
whole.
"""

import time

import structlog
from rollcast import limits
from rollcast.history import History, digest_of, oldest_versions
from rollcast.specs import BehaviorSpec
from rollcast.throttle import Throttle
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import session_pb2, trajectory_pb2

from actor_client.connection.backoff import Clock
from actor_client.connection.books import Books, BooksView
from actor_client.connection.errors import one_line
from actor_client.connection.gate import Gate
from actor_client.connection.pins import Pins
from actor_client.connection.state import ConnectionState
from actor_client.connection.window import WINDOW_BYTES, OutgoingChunk
from actor_client.counts import count
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.actions import ActingPolicy, PolicyUnusable
from actor_client.rollout.assignment import Pinned
from actor_client.rollout.link import ChunkLimits

# Smallest byte observations that are compressed: floats do not shrink, and small observations gain too little.
COMPRESS_FROM_BYTES = 1024
# Bytes reserved for the number of a waiting chunk, which is not known yet.
PLACEHOLDER_SEQUENCE = 1 << 34
# Consecutive chunks over the limit after which the recorder's estimate is considered wrong.
MAX_TOO_LARGE = 20

_PAUSES_ALL = frozenset(
    {
        trajectory_pb2.HOLD_REASON_PAUSED,
        trajectory_pb2.HOLD_REASON_DRAINING,
        trajectory_pb2.HOLD_REASON_LOCKSTEP,
    }
)
"""Holds that stop every step; the others only stop experience."""
PATIENCE_SECONDS = 60.0
"""Seconds without a usable version after which the actor ends. Updates are more frequent."""


class Behavior:
    """State of one behavior, shared by its teams.

    Args:
        state: The state of the connection.
        spec: The declared spec.

    Attributes:
        index: The learner's number in the present session; -1 before it is declared.
        gate: Credit and holds in the present session.
        settings: The learner's settings for segments.
        newest: The newest loaded policy of the present generation.
        policy_error: The reason why the newest version cannot be used; empty if it can.
        pins: The requested versions.
        ports: One port per team.
    """

    def __init__(self, state: ConnectionState, spec: BehaviorSpec) -> None:
        self._state = state
        self.spec = spec
        self.name = spec.name
        self.index = -1
        self.gate = Gate(0)
        self.settings = session_pb2.DeclareBehaviorResponse()
        self.newest: ActingPolicy | None = None
        self.policy_error = ""
        self.pins = Pins(lambda: state.call_soon(state.pinned.set))
        self.ports: tuple[BehaviorPort, ...] = ()
        self._pictures = frozenset(
            prefix + observation.name
            for observation in spec.observations
            if observation.dtype.itemsize == 1 and observation.size_bytes >= COMPRESS_FROM_BYTES
            for prefix in ("obs/", "final_obs/")
        )

    def port(self, team: int, agents: int) -> "BehaviorPort":
        """Returns the port of a team, creating it if necessary, and sets its number of agents."""
        for port in self.ports:
            if port.team == team:
                port.agents = agents
                return port
        port = BehaviorPort(self._state, self, team, agents)
        self.ports = (*self.ports, port)
        return port

    @property
    def agents(self) -> int:
        """Number of acting agents of all teams."""
        return sum(port.agents for port in self.ports)

    @property
    def produced_steps(self) -> int:
        """Steps that all teams have produced in the present session."""
        ports = self.ports
        if len(ports) == 1:
            return ports[0].present_books.produced_steps
        return sum(port.present_books.produced_steps for port in ports)

    @property
    def spooled_steps(self) -> int:
        """Steps of all teams that wait for the connection to return."""
        return sum(port.present_books.spooled_steps for port in self.ports)

    @property
    def is_replayed(self) -> bool:
        """True if the trainer has replay memory, for which no step is too old."""
        return self.settings.replay

    @property
    def records_offline(self) -> bool:
        """True if steps are recorded now although there is no connection."""
        return self._state.outage_bytes > 0 and self.is_replayed and not self._state.uploading

    def may_send(self, steps: int) -> bool:
        """Returns whether credit allows for sending so many spooled steps.

        Open steps do not count: they wait for the spooled ones, and must not keep them from leaving.
        """
        sent = sum(port.present_books.sent_steps for port in self.ports)
        return sent + steps <= self.gate.steps_through

    def restart(self, generation: int, *, is_lost: bool) -> None:
        """Begins another generation of the learner, or another session. Called under the window's lock.

        Args:
            generation: Generation of the learner.
            is_lost: The learner does not know the session: the behavior is declared again, and its books restart at
                zero.
        """
        self.gate = Gate(generation)
        self.newest = None
        self.pins.restart()
        self.policy_error = ""
        if is_lost:
            self.index = -1
            for port in self.ports:
                port.lose_session()

    def view(self) -> BooksView:
        """Returns the books of the present session, for all teams."""
        return sum((port.present_books.view() for port in self.ports), BooksView())

    def total(self) -> BooksView:
        """Returns the books of all sessions, for all teams, read at one moment."""
        with self._state.window.lock:
            return sum((port.total() for port in self.ports), BooksView())

    @property
    def has_untaken_policy(self) -> bool:
        """True if no team has taken the newest policy."""
        newest = self.newest
        return newest is not None and not any(port.has_taken(newest) for port in self.ports)

    @property
    def credit_steps(self) -> int:
        """Steps that may be taken before more credit is needed."""
        return max(0, self.gate.steps_through - self.produced_steps + self.spooled_steps)

    @property
    def held(self) -> frozenset[str]:
        """Reasons of the holds that stop any team."""
        versions = [port.acting[1] for port in self.ports]
        return frozenset(
            hold.word for hold in self.gate.holds if any(hold.holds(version) for version in versions or [0])
        )

    def report(self) -> session_pb2.ActorBooks:
        """Returns the books as a message of a renewal."""
        return self.view().to_message(self.index, self.agents)

    def policy_report(self) -> session_pb2.PolicyReport:
        """Returns the acting policy, and the reason why a newer one does not act."""
        generation, version = max((port.acting for port in self.ports), default=(0, 0))
        return session_pb2.PolicyReport(
            behavior_index=self.index, generation=generation, version=version, error=self.policy_error
        )

    def refuse(self, policy: ActingPolicy, why: str, instead: ActingPolicy | None) -> None:
        """Reports immediately that a version cannot act on the observations. Called in the connection's thread."""
        state, why = self._state, one_line(why)
        state.counts.policies_unusable += 1
        if policy is self.newest:
            self.policy_error = why
            state.renew_now.set()
        if (left_out := state.notices.admit("policy_refused")) is not None:
            action = (
                "waits for a newer version"
                if instead is None
                else f"continues with version {instead.version}, unless it is too old"
            )
            structlog.get_logger().warning(
                "policy_refused", behavior=self.name, reason=why, action=action, left_out=left_out
            )

    def encode(self, chunk: Chunk) -> trajectory_pb2.UploadRequest:
        """Returns the message of a chunk, with the session's present counters."""
        view = self.view()
        chunk.sequence = PLACEHOLDER_SEQUENCE
        chunk.behavior_index = max(self.index, 0)  # -1 between two sessions: the chunk is then dropped
        chunk.produced_steps = view.produced
        chunk.discarded = dict(view.discarded)
        chunk.ghost_steps = view.ghost
        chunk.agents = self.agents
        run = self._state.run
        pictures = self._pictures if run is not None and "zstd" in run.column_encodings else frozenset()
        return trajectory_pb2.UploadRequest(chunk=encode_chunk(chunk, compress=pictures))


class BehaviorPort:
    """One behavior id (a behavior and a team); implements `actor_client.rollout.link.BehaviorLink`."""

    def __init__(self, state: ConnectionState, behavior: Behavior, team: int, agents: int) -> None:
        self._state = state
        self._behavior = behavior
        self._team = team
        self.agents = agents
        self._notices = Throttle()
        self._too_large = 0  # consecutive
        self._books = self._new_books()
        self._past = BooksView()  # of all earlier sessions
        self._next_books: Books | None = None  # of the new session, until begin_session
        self._acting: ActingPolicy | None = None
        self._fallback = Fallback()
        self.acting = (0, 0)

    @property
    def behavior(self) -> str:
        """The behavior's name, without a team."""
        return self._behavior.name

    @property
    def behavior_index(self) -> int:
        """The learner's number of the behavior."""
        return self._behavior.index

    @property
    def time_horizon(self) -> int:
        """Most steps of a segment."""
        return self._behavior.settings.time_horizon

    @property
    def max_policy_lag(self) -> int:
        """A segment is cut before its oldest row lags further than this behind the acting version; 0 = no limit."""
        return self._behavior.settings.max_policy_lag

    @property
    def cut_at_swap(self) -> bool:
        """True if open segments end when the policy is replaced."""
        return self._behavior.settings.cut_at_swap

    @property
    def awaits_assignment(self) -> bool:
        """True if the behavior has self-play: a behavior id acts only once an assignment gives it a task."""
        return self._behavior.settings.awaits_assignment

    @property
    def team(self) -> int:
        """The team that was declared."""
        return self._team

    @property
    def limits(self) -> ChunkLimits:
        """The limits on chunks."""
        return self._state.chunk_limits

    @property
    def books(self) -> Books:
        """The books used by the stepping thread; those of the old session until `begin_session`."""
        return self._books

    @property
    def present_books(self) -> Books:
        """The books of the session that the learner knows."""
        return self._next_books or self._books

    @property
    def session_lost(self) -> bool:
        """True if the learner no longer knows the session; `begin_session` switches to the new one."""
        return self._next_books is not None

    def begin_session(self) -> None:
        """Switches to the new session: its books start at zero, and its policy is sent again."""
        with self._state.window.lock:
            if self._next_books is not None:
                self._past += self._books.view()
                self._books, self._next_books = self._next_books, None
                if self._acting is not self._behavior.newest:
                    self.acting = (0, 0)

    @property
    def policy(self) -> ActingPolicy | None:
        """The acting policy; None before the first."""
        return self._acting

    def has_taken(self, policy: ActingPolicy) -> bool:
        """Returns whether a policy acts, or was refused after acting."""
        return policy is self._acting or policy is self._fallback.refused

    def total(self) -> BooksView:
        """Returns the books of all sessions. Called under the window's lock."""
        books = self._past + self._books.view()
        return books if self._next_books is None else books + self._next_books.view()

    def lose_session(self) -> None:
        """Asks the stepping thread to discard its open rows. Called by the connection, under the window's lock."""
        self._next_books = self._new_books()

    def take_policy(self) -> ActingPolicy | None:
        """Returns the newest loaded policy, or None if it was taken; raises like `BehaviorLink.take_policy`."""
        newest = self._behavior.newest
        if newest is None or newest is self._acting:
            return None
        if newest is self._fallback.refused:
            self._fallback.wait(is_stranded=self._is_stranded)
            return None
        self._fallback.took(newest, self._acting)
        self._acting = newest
        self.acting = (newest.generation, newest.version)
        if self._state.history is not None:
            self._state.history.write(
                "policy", behavior=self.behavior, team=self._team, generation=newest.generation, version=newest.version
            )
        self._state.rollout.swaps += 1
        self._state.rollout.swapped_at = time.time()
        return newest

    def refuse(self, why: PolicyUnusable) -> ActingPolicy | None:
        """Returns the replacement of the acting policy, which cannot act; None until a newer one arrives."""
        refused = self._acting
        if refused is None:
            return None
        self._acting = instead = self._fallback.refuse(refused, why)
        self.acting = (0, 0) if instead is None else (instead.generation, instead.version)
        self._state.call_soon(lambda: self._behavior.refuse(refused, str(why), instead))
        return instead

    @property
    def _is_stranded(self) -> bool:
        """True if the agents can step only with a newer policy: none acts, or the acting policy is too old."""
        state, gate = self._state, self._behavior.gate
        if not state.flowing or self._next_books is not None or _is_paused(gate):
            return False
        generation, version = self.acting
        return generation != gate.generation or gate.held(version)

    def may_step(self, steps: int) -> bool:
        """Returns whether `steps` more may be recorded."""
        state, behavior = self._state, self._behavior
        gate = behavior.gate
        generation, version = self.acting
        if state.outage_bytes and behavior.records_offline:
            return self._may_step_offline(gate)
        return (
            state.flowing
            and generation == gate.generation
            and gate.has_room(behavior.produced_steps, steps)
            and not (gate.holds and gate.held(version))
            and state.window.unacked_bytes < WINDOW_BYTES
            and self._next_books is None
            and not (behavior.is_replayed and behavior.spooled_steps)  # they leave first
        )

    def _may_step_offline(self, gate: Gate) -> bool:
        """Returns whether steps may be recorded without a connection: an operator's pause or a quota forbids it."""
        return (
            self.acting[0] == gate.generation
            and self._next_books is None
            and gate.quota_through is None
            and not _is_paused(gate)
        )

    def may_act(self, policy: ActingPolicy) -> bool:
        """Returns whether unrecorded steps may be taken."""
        state, gate = self._state, self._behavior.gate
        return (
            state.flowing
            and policy.generation == gate.generation
            and state.window.unacked_bytes < WINDOW_BYTES
            and self._next_books is None
            and not _is_paused(gate)
        )

    def pinned(self, generation: int, version: int) -> ActingPolicy | None:
        """Returns a specific version; None until it is available."""
        behavior, newest = self._behavior, self._behavior.newest
        for policy in (newest, self._acting):
            if policy is not None and policy.version == version and generation in {0, policy.generation}:
                return policy
        pin = behavior.pins.get(Pinned(generation, version))
        return pin.policy if pin.failed_at is None else newest

    def opponent(self, pinned: Pinned) -> ActingPolicy | None:
        """Returns the policy of an opponent; None until it is available."""
        return self._behavior.pins.get(pinned, retries=True).policy

    @property
    def has_used_quota(self) -> bool:
        """True if everything must be sent, because the actor's part of the next update is complete."""
        behavior = self._behavior
        return behavior.gate.has_used_quota(behavior.produced_steps)

    @property
    def is_paused(self) -> bool:
        """True while an operator's pause holds the run."""
        return any(hold.reason == trajectory_pb2.HOLD_REASON_PAUSED for hold in self._behavior.gate.holds)

    @property
    def missing(self) -> str:
        """The reason why `may_step` is False, one of `actor_client.counts.WAIT_REASONS`."""
        state, gate = self._state, self._behavior.gate
        generation, version = self.acting
        if not (state.uploading and state.flowing) or self._next_books is not None:
            return "connection"
        if self._acting is None or generation != gate.generation:
            return "policy"
        return "hold" if gate.held(version) or self.has_used_quota else "credit"

    def send(self, chunk: Chunk) -> None:
        """Takes over a sealed chunk; counts it as dropped if the learner can no longer use it."""
        state, behavior, books = self._state, self._behavior, self._books
        chunk.team = self._team
        digest = "" if state.history is None else self._note_rows(state.history, chunk)
        request = behavior.encode(chunk)
        state.rollout.chunks_built += 1
        size_bytes = request.chunk.ByteSize()
        with state.window.lock:
            reason = self._fault(chunk, size_bytes)
            if reason is None:
                outgoing = OutgoingChunk(request, behavior.gate, books, chunk.rows, size_bytes, behavior, digest=digest)
                self._keep(outgoing, is_old=chunk.generation != behavior.gate.generation)
            else:
                books.drop(reason, chunk.rows)
        if reason is None:
            self._too_large = 0
            state.wake()
            return
        count(state.rollout.chunks_dropped, reason)
        if reason == "too_large":
            self._say_too_large(chunk.rows, size_bytes)
        if (left_out := self._notices.admit(reason)) is not None:
            structlog.get_logger().info(
                "chunk_dropped", behavior=behavior.name, reason=reason, steps=chunk.rows, left_out=left_out
            )

    def _new_books(self) -> Books:
        """Returns the books of a new session."""
        history = self._state.history
        if history is None:
            return Books()

        def note(event: str, reason: str, steps: int) -> None:
            history.write(event, behavior=self.behavior, reason=reason, steps=steps)

        return Books(note)

    def _note_rows(self, history: History, chunk: Chunk) -> str:
        """Records a sealed chunk, and returns the digest of its columns."""
        digest = digest_of(chunk)
        history.write(
            "rows",
            behavior=self.behavior,
            team=self._team,
            generation=chunk.generation,
            digest=digest,
            steps=chunk.rows,
            versions=oldest_versions(chunk),
        )
        return digest

    def _keep(self, outgoing: OutgoingChunk, *, is_old: bool) -> None:
        """Keeps a chunk until it is acked: in the window, or in the ring. Called under the window's lock.

        Args:
            outgoing: The chunk.
            is_old: Whether it acted under an earlier start of the learner, and so has no credit of this one.
        """
        state = self._state
        if not self._behavior.records_offline and not is_old:
            state.window.put(outgoing)
            return
        dropped = state.window.spool(outgoing, max(state.outage_bytes, WINDOW_BYTES if is_old else 0))
        if not dropped:
            return
        count(state.rollout.chunks_dropped, "outage_full", len(dropped))
        if (left_out := self._notices.admit("outage_full")) is not None:
            structlog.get_logger().warning(
                "outage_full",
                behavior=self._behavior.name,
                bytes=state.outage_bytes,
                dropped_steps=sum(each.rows for each in dropped),
                action="the oldest steps are dropped; raise --outage-bytes to keep more",
                left_out=left_out,
            )

    def _say_too_large(self, rows: int, size_bytes: int) -> None:
        """Ends the actor if a chunk cannot be made smaller, or too many in a row exceed the limit."""
        state, name = self._state, self._behavior.name
        limit_bytes = state.chunk_limits.max_chunk_bytes
        self._too_large += 1
        if rows == 1 or self._too_large >= MAX_TOO_LARGE:
            failure = _too_large(name, rows, size_bytes, limit_bytes)
            state.call_soon(lambda: state.fail(failure))
        elif (left_out := self._notices.admit("chunk_too_large")) is not None:
            structlog.get_logger().error(
                "chunk_too_large", behavior=name, size_bytes=size_bytes, limit_bytes=limit_bytes, left_out=left_out
            )

    def _fault(self, chunk: Chunk, size_bytes: int) -> str | None:
        """Returns the reason in the books why a chunk cannot be sent, or None."""
        if self._next_books is not None:
            return "session_lost"
        if chunk.generation != self._behavior.gate.generation and not self._behavior.is_replayed:
            return "generation"
        if size_bytes > self._state.chunk_limits.max_chunk_bytes:
            return "too_large"
        return None


def _is_paused(gate: Gate) -> bool:
    return any(hold.reason in _PAUSES_ALL for hold in gate.holds)


def _too_large(behavior: str, rows: int, size_bytes: int, limit_bytes: int) -> ActorError:
    """Returns the error for steps that do not fit the learner's chunks."""
    what = "one step" if rows == 1 else f"a chunk of {rows} steps"
    if limit_bytes < limits.MAX_CHUNK_BYTES:
        advice = f"raise it to at most {limits.MAX_CHUNK_BYTES}, or send smaller observations"
    else:
        advice = "this is the highest possible limit, so send smaller observations"
    return ActorError(
        ExitCode.REFUSED,
        f"{what} of behavior {behavior} takes {size_bytes} bytes, but the learner allows {limit_bytes} "
        f"(rollcast.max_chunk_bytes in its run file); {advice}",
    )


class Fallback:
    """The fallback of one behavior id. All methods are for the stepping thread.

    Args:
        clock: Measures the wait.

    Attributes:
        refused: The newest version, if it was taken and cannot act; otherwise None.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self.refused: ActingPolicy | None = None
        self._before: ActingPolicy | None = None
        self._why = ""
        self._stranded_at = 0.0

    def took(self, policy: ActingPolicy, before: ActingPolicy | None) -> None:
        """Notes that a newer policy acts.

        Args:
            policy: The newer policy.
            before: The previous policy; None if there was none.
        """
        self.refused = None
        self._before = before if before is not None and before.generation == policy.generation else None

    def refuse(self, policy: ActingPolicy, why: PolicyUnusable) -> ActingPolicy | None:
        """Returns the replacement of a policy that cannot act; None if there is none.

        Args:
            policy: The acting policy.
            why: Its error.
        """
        if self.refused is None:  # otherwise the refused version still must not be taken again
            self.refused = policy
        self._why = str(why)
        self._stranded_at = self._clock()
        before, self._before = self._before, None
        return before

    def wait(self, *, is_stranded: bool) -> None:
        """Checks between steps, while the newest version is refused, that the wait is not too long.

        Args:
            is_stranded: Whether only a newer version would let it step.

        Raises:
            PolicyUnusable: No usable version arrived in time.
        """
        now = self._clock()
        if not is_stranded:
            self._stranded_at = now
        elif now - self._stranded_at >= PATIENCE_SECONDS:
            raise PolicyUnusable(f"{self._why}; no newer version arrived within {PATIENCE_SECONDS:.0f} seconds")
