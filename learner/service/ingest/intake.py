"""Finds the place of a chunk, checks it, accounts for it and queues it: stops 5 and 6 of a step's path."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import AssignmentRole, ColumnRole, Purpose
from rollcast.errors import CreditExceeded, MalformedChunk, SequenceGap, Untrainable
from rollcast.history import digest_of
from rollcast.throttle import Throttle
from rollcast.v1 import trajectory_pb2

from learner.link.to_front import NOT_TRAINING
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.matches import OPPONENT, GivenMatches
from learner.service.ingest.session import Account, ActorSession
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.validate import Rejected, check_header, decode, judge, judge_generation, takes
from learner.service.metrics.learner import IntakeMetrics
from learner.shared.observe.values import CREDIT_EXCEEDED, MALFORMED

_log = structlog.get_logger(__name__)

ASSIGNMENT: Final = "episode/assignment"
"""Column with the assignment of an episode: the wire's ids, replaced by the trainers' order numbers on intake."""
MAX_GROUPS: Final = 4096
"""Most groups that are remembered of a session and behavior, the newest."""
WITHOUT_ROWS: Final = "without_rows"
"""Reason for records of more episodes than the rows of their session can have."""
MAX_HELD_EPISODES: Final = 64
"""Most episodes of agents in groups that count before their rows arrive: actors hold these rows back for the mates."""


@dataclass(frozen=True, slots=True)
class Examined:
    """A chunk that has been checked and is not in the ledger yet.

    Attributes:
        behavior: Its behavior.
        account: Account of its sender.
        place: Its sender's place in the run.
        principal: Its sender's principal; empty if actors are not identified.
        rejected: Why its rows are refused; None if they are accepted.
        chunk: The arrays.
        encoded_bytes: Size on the wire, in bytes.
        resident_bytes: Memory of the unpacked arrays, in bytes.
        received_at: When it was received, in monotonic seconds.
    """

    behavior: Behavior
    account: Account
    place: int
    principal: str
    rejected: Rejected | None
    chunk: Chunk
    encoded_bytes: int
    resident_bytes: int
    received_at: float

    @property
    def has_room(self) -> bool:
        """True if it can be settled now; if not, reading pauses and network flow control holds the sender back."""
        return self.rejected is not None or self.behavior.queue.has_room(
            self.resident_bytes, self.place, steps=self.chunk.rows, principal=self.principal
        )


class ChunkIntake:
    """Accepts chunks, each in one transaction under the ledger's lock. For the service's event loop alone.

    Args:
        behaviors: The declared behaviors.
        sessions: The sessions that send chunks.
        ledger: The ledger of steps.
        newest_version: Returns the newest published version of a behavior; None before the first.
        order_numbers: Returns the trainers' order numbers of a session's assignment ids; 0 for none.
        matches: The matches that sessions were told of.
        on_agents: Called when a session's number of agents changes, before that chunk is queued.
        metrics: Metrics in which chunks are counted.
    """

    def __init__(
        self,
        behaviors: BehaviorTable,
        sessions: SessionTable,
        ledger: Ledger,
        *,
        newest_version: Callable[[str], int | None],
        order_numbers: Callable[[str, NDArray[Any]], NDArray[Any]],
        matches: GivenMatches,
        on_agents: Callable[[], object],
        metrics: IntakeMetrics,
    ) -> None:
        self._metrics = metrics
        self._behaviors = behaviors
        self._sessions = sessions
        self._ledger = ledger
        self._newest_version = newest_version
        self._order_numbers = order_numbers
        self._matches = matches
        self._on_agents = on_agents
        self._refused = Throttle()
        self._max_chunk_bytes = behaviors.service.max_chunk_bytes

    def examine(self, session: ActorSession, message: trajectory_pb2.Chunk, encoded_bytes: int) -> Examined | None:
        """Checks a chunk. Returns None for a chunk that was settled before, which is counted and acked again.

        Raises:
            SequenceGap: Earlier chunks are missing.
            MalformedChunk: The form of the chunk is invalid.
            CreditExceeded: The sender had no credit for its steps.
            Untrainable: A group has agents of two behaviors, one of which is trained by groups.
        """
        self._metrics.received.inc()
        self._metrics.wire_bytes.inc(encoded_bytes)
        self._metrics.chunk_bytes.observe(encoded_bytes)
        if self._is_settled(session, message.sequence):
            self._count_duplicate(session, message)
            return None
        try:
            check_header(message, encoded_bytes, self._max_chunk_bytes)
            behavior, account = self._addressed(session, message)
            chunk, rejected = self._judged(session, behavior, account, message)
        except (MalformedChunk, CreditExceeded, Untrainable) as error:
            self._metrics.rejected(CREDIT_EXCEEDED if isinstance(error, CreditExceeded) else MALFORMED)
            error.metadata.setdefault("sequence", str(message.sequence))
            raise
        assignments = chunk.columns.get(ASSIGNMENT)
        if assignments is not None:
            chunk.columns[ASSIGNMENT] = self._order_numbers(session.session_id, assignments)
        return Examined(
            behavior,
            account,
            session.actor_index,
            session.principal,
            rejected,
            chunk,
            encoded_bytes=encoded_bytes,
            resident_bytes=max(encoded_bytes, sum(column.nbytes for column in chunk.columns.values())),
            received_at=self._sessions.clock(),
        )

    def _judged(
        self,
        session: ActorSession,
        behavior: Behavior,
        account: Account,
        message: trajectory_pb2.Chunk,
    ) -> tuple[Chunk, Rejected | None]:
        """Returns a chunk, and why its rows are refused. What is cheap to check is checked before a column is unpacked."""
        outdated = judge_generation(message, self._sessions.generation)
        if outdated is not None and not behavior.takes_any_generation:
            return outdated.chunk, outdated
        _check_credit(account, message.rows)
        chunk = decode(message, behavior)
        newest_version = self._newest_version(behavior.name)
        if outdated is not None:
            newest_version = newest_version or 0  # the trainers of this start may not have published yet
            self._adopt(chunk, newest_version)
        rejected = judge(chunk, behavior, newest_version)
        if rejected is None and behavior.plays_matches:
            rejected = self._judge_match(session, behavior, chunk)
        note_groups(session, account, chunk, self._behaviors.by_index)
        return chunk, rejected

    def _adopt(self, chunk: Chunk, newest_version: int) -> None:
        """Makes a chunk of an earlier start of the learner one of this start.

        Versions and assignments mean nothing across starts: its rows count as those of the newest version at most, and its
        episodes belong to no order.
        """
        chunk.generation = self._sessions.generation
        chunk.base_version = min(chunk.base_version, newest_version)
        chunk.columns.pop("version_offset", None)
        if ASSIGNMENT in chunk.columns:
            chunk.columns[ASSIGNMENT] = np.zeros_like(chunk.columns[ASSIGNMENT])

    def settle(self, session: ActorSession, examined: Examined) -> Rejected | None:
        """Books a checked chunk in ledger, session and queue, in one transaction.

        Returns:
            Why its rows were refused; None if they are queued.

        Raises:
            SequenceGap: Another stream of the session settled a chunk in between.
            QueueFullError: The caller did not check `Examined.has_room`.
        """
        chunk, behavior = examined.chunk, examined.behavior
        with self._ledger.lock:
            if self._is_settled(session, chunk.sequence):
                self._ledger.duplicate(behavior.name, chunk.rows)
                return None
            rejected = examined.rejected
            if rejected is None and not takes(behavior, chunk):
                rejected = Rejected(chunk, NOT_TRAINING, chunk.rows, f"{behavior.name} is no longer trained")
            self._note(session, examined, rejected)
            if rejected is not None:
                self._ledger.reject(behavior.name, rejected.reason, rejected.steps)
                self._metrics.rejected(rejected.reason)
            else:
                self._note_agents(examined.account, chunk)
                self._limit_episodes(session, examined)
                behavior.queue.put(
                    chunk,
                    session_id=session.session_id,
                    actor_index=session.actor_index,
                    encoded_bytes=examined.encoded_bytes,
                    resident_bytes=examined.resident_bytes,
                    received_at=examined.received_at,
                    principal=session.principal,
                )
                self._ledger.enqueue(behavior.name, chunk.rows)
            self._update(session, examined.account, chunk, examined.encoded_bytes)
        self._metrics.decoded_bytes.inc(examined.resident_bytes)
        return rejected

    def _note(self, session: ActorSession, examined: Examined, rejected: Rejected | None) -> None:
        """Records whether a chunk is queued or dropped."""
        history, chunk = self._ledger.history, examined.chunk
        if history is None:
            return
        name = history.chunk(session.session_id, chunk.sequence, chunk.generation)
        fields = {"chunk": name, "behavior": examined.behavior.name, "steps": chunk.rows}
        if rejected is None:
            history.write("queued", **fields, digest=digest_of(chunk))
        else:
            history.write("dropped", **fields, reason=rejected.reason)

    def _judge_match(self, session: ActorSession, behavior: Behavior, chunk: Chunk) -> Rejected | None:
        """Verifies the matches of a chunk; returns why its rows are refused, None if they are not of an opponent."""
        self._matches.verify(session.session_id, behavior.name, chunk)
        place = self._matches.opponent_segment(session.session_id, behavior.name, chunk)
        if place is None:
            return None
        detail = (
            f"segment {place}: team {chunk.team} of {behavior.name} acts as an opponent, whose rows are not trained"
        )
        return Rejected(chunk, OPPONENT, chunk.rows, detail)

    def _limit_episodes(self, session: ActorSession, examined: Examined) -> None:
        """Removes records of more training episodes than the session's rows can have; the rows are accepted."""
        behavior = examined.behavior
        is_grouped = behavior.spec.grouped or behavior.settings.traits.grouped
        refused = leave_out_excess(examined.account, examined.chunk, is_grouped=is_grouped)
        if not refused:
            return
        self._metrics.refused_episodes(WITHOUT_ROWS, refused)
        if (left_out := self._refused.admit(session.session_id)) is not None:
            _log.warning(
                "episodes_refused",
                actor=session.actor_name,
                actor_index=session.actor_index,
                behavior=behavior.name,
                reason=WITHOUT_ROWS,
                episodes=refused,
                rows=examined.account.episode_rows,
                hint="the actor reports more training episodes than its rows can have; they enter no mean",
                left_out=left_out,
            )

    def _is_settled(self, session: ActorSession, sequence: int) -> bool:
        if sequence > session.next_sequence:
            raise SequenceGap(
                f"received chunk {sequence}, expected chunk {session.next_sequence}: reopen the stream and resend",
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
        claimable = self._sessions.claimable(session)
        produced = min(chunk.produced_steps, account.received_steps + claimable)
        account.produced_steps = max(account.produced_steps, produced)
        account.discarded_steps = max(account.discarded_steps, min(sum(chunk.discarded.values()), claimable))
        self._note_agents(account, chunk)
        self._sessions.note_received(session, account)
        self._sessions.touch(session)

    def _note_agents(self, account: Account, chunk: Chunk) -> None:
        if chunk.agents and chunk.agents != account.agents:
            account.agents = chunk.agents
            self._on_agents()


def _check_credit(account: Account, rows: int) -> None:
    if not account.is_covered(rows):
        share = account.step_share
        raise CreditExceeded(
            f"a chunk of {rows} steps of {account.behavior} follows {share.settled} steps that were "
            f"received or given up, but credit was granted for only {share.granted}: take no step without credit "
            "(Credit.steps_through)",
            metadata={"rows": str(rows), "settled": str(share.settled), "granted": str(share.granted)},
        )


def note_groups(
    session: ActorSession, account: Account, chunk: Chunk, behavior_of: Callable[[int], Behavior | None]
) -> None:
    """Notes the groups in a chunk, and refuses one that also has agents of a behavior that is trained by groups.

    Args:
        session: The session.
        account: Its account with the chunk's behavior.
        chunk: The chunk, whose form is valid.
        behavior_of: Returns a behavior by its index.

    Raises:
        Untrainable: A group has agents of two behaviors, one of which is trained by groups.
    """
    groups = chunk.columns.get("group")
    if groups is None:
        return
    present = dict.fromkeys(groups[groups != 0].tolist())
    for other in session.accounts.values():
        shared = present.keys() & other.groups.keys() if other is not account else set()
        trained = [
            name
            for name, index in ((account.behavior, account.index), (other.behavior, other.index))
            if (found := behavior_of(index)) is not None and found.settings.traits.grouped
        ]
        if shared and trained:
            group = min(shared)
            first, second = sorted((account.behavior, other.behavior))
            raise Untrainable(
                f"group {group & 0xFFFFFFFF} of environment {group >> 32} has agents of {first} and of {second}, but "
                f"{trained[0]} is trained with a critic of whole groups, which must have one behavior: give all agents of "
                "a group the same behavior, or use another trainer_type",
                metadata={"behavior": account.behavior, "other": other.behavior, "group": str(group)},
            )
    for group in present:
        account.groups.pop(group, None)
        account.groups[group] = None
    for group in list(account.groups)[: max(0, len(account.groups) - MAX_GROUPS)]:
        del account.groups[group]


def leave_out_excess(account: Account, chunk: Chunk, *, is_grouped: bool) -> int:
    """Counts the rows and the training episodes of a chunk, and removes the records that are too many.

    Records of training episodes decide on lessons, the best policy and the end of a run, and cost their sender nothing.
    An episode has at least one row, and rows need credit, so a session's records count only up to the number of its
    received rows. The lengths in the records are no better measure: they are claims as well, and an episode that began
    before a restart, or lost rows to a reset, is honestly longer than what was received of it.

    Other records do not count here: evaluations count only under an order of the learner, those of opponents only in a
    match that the learner assigned, and demonstrations nowhere.

    Args:
        account: Account of the sender.
        chunk: The chunk, whose rows are accepted.
        is_grouped: Whether the behavior's agents are in groups.

    Returns:
        The number of removed records.
    """
    account.episode_rows += chunk.rows
    if not chunk.episodes:
        return 0
    counts = np.flatnonzero(_is_training(chunk))
    # Some more than the rows: records may precede rows of the same flush, and the last row of an agent may be void.
    early = min(account.agents, max(account.episode_rows, MAX_HELD_EPISODES if is_grouped else 0))
    room = max(0, account.episode_rows + early - account.episodes)
    excess = counts[room:]
    account.episodes += len(counts) - len(excess)
    if len(excess):
        _remove(chunk, excess)
    return len(excess)


def _is_training(chunk: Chunk) -> NDArray[np.bool_]:
    """Returns for each record whether it counts as a training episode, ``[E]``."""
    purposes, roles = (chunk.columns.get(f"episode/{name}") for name in ("purpose", "role"))
    found: NDArray[np.bool_] = np.ones(chunk.episodes, np.bool_)
    if purposes is not None:
        found &= (purposes == Purpose.TRAIN) | (purposes == Purpose.UNSPECIFIED)
    if roles is not None:
        found &= roles != AssignmentRole.OPPONENT
    return found


def _remove(chunk: Chunk, records: NDArray[Any]) -> None:
    """Removes records ``[R]`` from a chunk."""
    names = [name for name, role in chunk.roles.items() if role is ColumnRole.EPISODE]
    for name in names:
        chunk.columns[name] = np.delete(chunk.columns[name], records, axis=0)
    chunk.episodes -= len(records)
    if not chunk.episodes:
        for name in names:
            del chunk.columns[name], chunk.roles[name]
