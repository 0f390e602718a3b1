"""The state shared by the parts of a connection: session, window, gates, counters and events.

Only the connection's thread writes here. The stepping thread reads single attributes, and waits on `changed`.
"""

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from rollcast import limits
from rollcast.history import History
from rollcast.throttle import Throttle
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.connection.errors import DataRefusals
from actor_client.connection.gate import Gate
from actor_client.connection.session import Opening, RunInfo, Session
from actor_client.connection.window import OutgoingChunk, SendWindow
from actor_client.counts import ConnectionCounts, RolloutCounts, count
from actor_client.exits import ActorError
from actor_client.rollout.link import ChunkLimits

# Largest accepted number of a behavior.
MAX_BEHAVIORS = 1024


class SessionTimes:
    """Measures, in seconds since the present session began, how the actor spent its time.

    Args:
        rollout: Counters of the stepping thread.
        connection: Counters of the connection.
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
        """Returns the times as a message of a renewal."""
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


class Change(threading.Event):
    """An event that a listener follows, too.

    Attributes:
        listener: Called after each `set`, in the thread that sets it; None for nobody.
    """

    listener: Callable[[], object] | None = None

    def set(self) -> None:
        """Sets the event."""
        super().set()
        if self.listener is not None:
            self.listener()


class ConnectionState:
    """The state of one connection.

    Args:
        address: Address of the learner.
        session: The actor's place in the run.
        rollout: Counters of the stepping thread.
        history: Records what happens to each chunk; None without a history.

    Attributes:
        address: Address of the learner.
        session: The actor's place in the run.
        history: Records what happens to each chunk; None without a history.
        window: Chunks that are not acked.
        run: The learner's answer; None before the first opening.
        chunk_limits: Limits on chunks.
        flowing: False while the learner drains: no steps are taken.
        stopping: The actor was asked to end.
        stop_reason: The reason for the end, for logs.
        error: The error that ends the actor.
        last_failure: Why the learner could not be reached.
        careful: Chunks are sent one by one, because the last stream ended without a visible reason.
        reconnects: Number of lost connections.
        rejected: Rows that the learner refused in acks, by reason; they are acked in the books.
        refusals: Counts consecutive chunks with faulty data.
        changed: Set whenever the stepping thread may have something to do.
        sendable: Set when the sender may have something to do.
        declared: Set when a declaration was added or answered.
        renew_now: Set when the next renewal is due immediately.
        loadable: Set when a policy may be loaded: it was received, or its behavior got a number.
        pinned: Set when the stepping thread has asked for a specific version.
        assignment: The learner's present assignment; None before the first opening.
        close_reason: The reason why the session is closed, for the learner.
        close_message: See close_reason.
        rollout: Counters of the stepping thread.
        counts: Counters of the connection.
        times: Times of the present session.
        uploading: The upload stream is open.
        subscribed: The policy stream is open.
        gates: All gates of the present session and generation, by number.
        closing: Set to send the remaining data and close the session.
        outage_bytes: Most bytes of chunks that are recorded without a connection; 0 = none are.
        loop: The event loop of the connection's thread.
    """

    def __init__(
        self,
        address: str,
        session: Session,
        rollout: RolloutCounts | None = None,
        history: History | None = None,
        outage_bytes: int = 0,
    ) -> None:
        self.address = address
        self.outage_bytes = outage_bytes
        self.session = session
        self.history = history
        self.window = SendWindow()
        self.notices = Throttle()
        self.run: RunInfo | None = None
        self.chunk_limits = ChunkLimits(limits.TARGET_CHUNK_BYTES, limits.MAX_CHUNK_BYTES, 0.05, 0)
        self.flowing = True
        self.stopping = False
        self.stop_reason = ""
        self.error: ActorError | None = None
        self.last_failure = ""
        self.careful = False
        self.reconnects = 0
        self.rejected: dict[str, int] = {}
        self.refusals = DataRefusals()
        self.changed = Change()
        self.sendable = asyncio.Event()
        self.declared = asyncio.Event()
        self.renew_now = asyncio.Event()
        self.loadable = asyncio.Event()
        self.pinned = asyncio.Event()
        self.closing = asyncio.Event()
        self.assignment: policy_pb2.Assignment | None = None
        self.close_reason: session_pb2.CloseReason.ValueType = session_pb2.CLOSE_REASON_DONE
        self.close_message = ""
        self.rollout = rollout or RolloutCounts()
        self.counts = ConnectionCounts()
        self.times = SessionTimes(self.rollout, self.counts)
        self.uploading = False
        self.subscribed = False
        self.gates: dict[int, Gate] = {}
        self.loop = asyncio.get_running_loop()

    def wake(self) -> None:
        """Notifies the sender, from any thread, of a new chunk. Has no effect once the connection has ended."""
        self.call_soon(self.sendable.set)

    def call_soon(self, callback: Callable[[], object]) -> None:
        """Runs a callback in the connection's thread; callable from any thread or signal handler."""
        with suppress(RuntimeError):  # the loop is closed
            self.loop.call_soon_threadsafe(callback)

    def stop(self, reason: str) -> None:
        """Asks the stepping thread to end."""
        if not self.stopping:
            self.stop_reason = reason
        self.stopping = True
        self.changed.set()

    def fail(self, error: ActorError) -> None:
        """Asks the stepping thread to end with an error."""
        self.error = self.error or error
        self.stop(error.message)

    def gate(self, index: int) -> Gate | None:
        """Returns the gate of a number in the present session; credit may arrive before the answer to a declaration."""
        if index not in self.gates and index < MAX_BEHAVIORS:
            self.gates[index] = Gate(self.session.generation)
        return self.gates.get(index)

    def opened(self, opening: Opening, run: RunInfo, keeps: Callable[[OutgoingChunk], bool]) -> int:
        """Applies an opening. Chunks that the learner received are acked; those that it can no longer use are dropped.

        Args:
            opening: The effect of the opening.
            run: The learner's answer.
            keeps: Returns whether a restarted learner takes a chunk that it did not receive.

        Returns:
            The number of dropped rows.
        """
        with self.window.lock:
            self.run = run
            self.chunk_limits = run.limits
            self._take_over(opening, run.assignment)
            if opening is Opening.RESUMED:
                return 0
            if opening is not Opening.NEW_GENERATION:
                self.times.begin()
            is_lost = opening is Opening.LOST
            reason = "session_lost" if is_lost else "generation"
            settled, dropped = self.window.clear(
                reason,
                self.session.next_sequence,
                settled_through=run.settled_through,
                keeps=None if is_lost else keeps,
            )
            self.counts.chunks_acked += len(settled)
            count(self.counts.chunks_dropped, reason, len(dropped))
            self.gates = {}
            return sum(outgoing.rows for outgoing in dropped)

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Applies the learner's assignment, if it is newer."""
        if self.assignment is None or assignment.id > self.assignment.id:
            self.assignment = assignment
            self.changed.set()

    def _take_over(self, opening: Opening, assignment: policy_pb2.Assignment) -> None:
        """Applies the assignment of an opening: a restarted learner counts from the beginning."""
        if opening is Opening.RESUMED:
            self.assign(assignment)
        else:
            self.assignment = assignment
