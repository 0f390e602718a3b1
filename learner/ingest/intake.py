"""Stops 5 and 6 of a step's way, for one chunk: place it, check it, account for it, queue it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rollcast.errors import CreditExceeded, MalformedChunk, SequenceGap
from rollcast.trajectories import Chunk
from rollcast.v1 import trajectory_pb2

from learner.ingest.behaviors import NOT_TRAINING, Behavior, BehaviorTable
from learner.ingest.ledger import Ledger
from learner.ingest.session import Account, ActorSession
from learner.ingest.sessions import SessionTable
from learner.ingest.validate import Rejected, decode, judge
from learner.link.experience import QueuedChunk
from learner.observe.metrics.learner import IntakeMetrics
from learner.observe.metrics.values import CREDIT_EXCEEDED, MALFORMED


@dataclass(frozen=True, slots=True)
class Examined:
    """A chunk that was checked and is not in the books yet."""

    behavior: Behavior
    account: Account
    rejected: Rejected | None
    item: QueuedChunk

    @property
    def has_room(self) -> bool:
        """Says whether it can be settled now; if not, the reader waits, and so does the network behind it."""
        return self.rejected is not None or self.behavior.queue.has_room(self.item.resident_bytes)


class ChunkIntake:
    """Takes chunks in. For the service's event loop alone; what it books is one transaction under the ledger's lock.

    Args:
        behaviors: what can be sent.
        sessions: who sends.
        ledger: the books.
        newest_version: the newest published version of a behavior; None before the first.
        metrics: where chunks are counted.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        *,
        newest_version: Callable[[str], int | None],
        metrics: IntakeMetrics,
    ) -> None:
        self._metrics = metrics
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._newest_version = newest_version
        self._max_chunk_bytes = behaviors.service.max_chunk_bytes

    def examine(self, session: ActorSession, message: trajectory_pb2.Chunk, encoded_bytes: int) -> Examined | None:
        """Checks a chunk; None for one that was settled before (it is counted, and acked again).

        Raises:
            SequenceGap: its predecessors are missing.
            MalformedChunk: a fault of form.
            CreditExceeded: its sender had no credit for its steps.
        """
        self._metrics.received.inc()
        self._metrics.wire_bytes.inc(encoded_bytes)
        self._metrics.chunk_bytes.observe(encoded_bytes)
        if self._is_settled(session, message.sequence):
            self._count_duplicate(session, message)
            return None
        try:
            behavior, account = self._addressed(session, message)
            chunk = decode(message, behavior, encoded_bytes, self._max_chunk_bytes)
            rejected = judge(chunk, behavior, self._sessions.generation, self._newest_version(behavior.name))
            if rejected is None:
                _check_credit(account, chunk)
        except (MalformedChunk, CreditExceeded) as error:
            self._metrics.rejected(MALFORMED if isinstance(error, MalformedChunk) else CREDIT_EXCEEDED)
            error.metadata.setdefault("sequence", str(message.sequence))
            raise
        item = QueuedChunk(
            chunk=chunk,
            session_id=session.session_id,
            actor_index=session.actor_index,
            encoded_bytes=encoded_bytes,
            received_at=self._sessions.clock(),
        )
        return Examined(behavior, account, rejected, item)

    def settle(self, session: ActorSession, examined: Examined) -> Rejected | None:
        """Books an examined chunk: ledger, session and queue in one transaction.

        Returns:
            Why its rows were refused; None if they are queued.

        Raises:
            SequenceGap: another stream of the session settled something in between.
            QueueFullError: `Examined.has_room` was not asked.
        """
        item, behavior = examined.item, examined.behavior
        chunk = item.chunk
        with self._ledger.lock:
            if self._is_settled(session, chunk.sequence):
                self._ledger.duplicate(behavior.name, chunk.rows)
                return None
            rejected = examined.rejected
            if rejected is None and not behavior.training:
                rejected = Rejected(chunk, NOT_TRAINING, chunk.rows, f"{behavior.name} is not trained any more")
            if rejected is not None:
                self._ledger.reject(behavior.name, rejected.reason, rejected.steps)
                self._metrics.rejected(rejected.reason)
            else:
                behavior.queue.put(item)
                self._ledger.enqueue(behavior.name, chunk.rows)
            self._update(session, examined.account, chunk, item.encoded_bytes)
        self._metrics.decoded_bytes.inc(item.resident_bytes)
        return rejected

    def _is_settled(self, session: ActorSession, sequence: int) -> bool:
        if sequence > session.next_sequence:
            raise SequenceGap(
                f"chunk {sequence} came, and {session.next_sequence} is next: open the stream again and resend",
                metadata={"sequence": str(sequence), "next_sequence": str(session.next_sequence)},
            )
        return sequence <= session.acked_through

    def _count_duplicate(self, session: ActorSession, message: trajectory_pb2.Chunk) -> None:
        self._metrics.duplicate.inc()
        account = session.accounts.get(message.behavior_index)
        if account is not None:
            self._ledger.duplicate(account.behavior, message.rows)
        self._sessions.touch(session)

    def _addressed(self, session: ActorSession, message: trajectory_pb2.Chunk) -> tuple[Behavior, Account]:
        account = session.accounts.get(message.behavior_index)
        behavior = self._behaviors.by_index(message.behavior_index)
        if account is None or behavior is None:
            raise MalformedChunk(
                f"behavior index {message.behavior_index} was not declared in this session: call DeclareBehavior first",
                metadata={"behavior_index": str(message.behavior_index)},
            )
        if message.team not in account.teams:
            raise MalformedChunk(
                f"team {message.team} of {behavior.name} was not declared in this session: call DeclareBehavior first",
                metadata={"behavior": behavior.name, "team": str(message.team)},
            )
        return behavior, account

    def _update(self, session: ActorSession, account: Account, chunk: Chunk, encoded_bytes: int) -> None:
        session.acked_through = chunk.sequence
        account.received_steps += chunk.rows
        account.received_bytes += encoded_bytes
        account.produced_steps = max(account.produced_steps, chunk.produced_steps)
        account.discarded_steps = max(account.discarded_steps, sum(chunk.discarded.values()))
        if chunk.agents:
            account.agents = chunk.agents
        self._sessions.touch(session)


def _check_credit(account: Account, chunk: Chunk) -> None:
    if not account.is_covered(chunk.rows):
        share = account.step_share
        raise CreditExceeded(
            f"a chunk of {chunk.rows} steps of {account.behavior} comes after {share.settled} steps that were received or "
            f"given up, and credit was granted for {share.granted}: take no step without credit (Credit.steps_through)",
            metadata={"rows": str(chunk.rows), "settled": str(share.settled), "granted": str(share.granted)},
        )
