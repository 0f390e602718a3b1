"""Tests the intake of a chunk: placed, checked, booked, queued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import ColumnRole
from rollcast.errors import CreditExceeded, MalformedChunk, SequenceGap
from rollcast.trajectories import Chunk, encode_chunk

from learner.link.channel import Transport, as_it_is
from learner.link.to_front import Pace
from learner.link.to_trainers import Actors
from learner.service.ingest.credit import step_allowance
from learner.service.ingest.grants import CreditAllocator
from learner.service.ingest.intake import ChunkIntake
from learner.service.ingest.matches import GivenMatches
from learner.service.ingest.openings import Opened, Resumption
from learner.service.ingest.session import CLAIMED_AT_ONCE, Account, ActorCounters, ActorSession
from learner.service.ingest.snapshots import restore, snapshot
from learner.service.ingest.validate import LARGEST, Rejected, judge
from learner.service.metrics.learner import LearnerMetrics
from learner.shared.runfolder.received import Received, ReceivedCount, session_key_of
from tests.coded_link import coded
from tests.learner.service.ingest.parts import NAME, Parts, make_chunk


class Line:
    """An intake with one session of one behavior."""

    def __init__(self, newest_version: int | None = 0, *, transport: Transport = coded) -> None:
        self.parts = Parts(transport=transport)
        self.session: ActorSession = self.parts.open().session
        self.behavior = self.parts.declared(self.session)
        self.session.accounts[0].granted_steps = 1000
        self.told: list[Actors] = []
        self.intake = ChunkIntake(
            self.parts.behaviors,
            self.parts.sessions,
            self.parts.ledger,
            newest_version=lambda _: newest_version,
            order_numbers=lambda session_id, assignments: np.where(
                (assignments == 12) & (session_id == self.session.session_id), np.uint64(3), np.uint64(0)
            ),
            matches=GivenMatches(),
            on_agents=lambda: self.told.append(self.parts.sessions.actors()),
            metrics=LearnerMetrics().intake,
        )

    def take(self, chunk: Chunk) -> Rejected | None:
        """Takes a chunk in."""
        message = encode_chunk(chunk)
        examined = self.intake.examine(self.session, message, message.ByteSize())
        return None if examined is None else self.intake.settle(self.session, examined)


def test_accepting_books_everything_at_once() -> None:
    """After a chunk, ledger, session and queue agree."""
    line = Line()
    chunk = make_chunk(6, produced_steps=9, discarded={"reset": 2}, agents=3)
    assert line.take(chunk) is None
    account = line.session.accounts[0]
    books = line.parts.ledger.books(NAME)
    assert (line.session.acked_through, account.received_steps, account.produced_steps) == (1, 6, 9)
    assert (account.discarded_steps, account.agents) == (2, 3)
    assert account.received_bytes == encode_chunk(chunk).ByteSize()
    assert (books.received, books.queued, line.behavior.queue.queued_steps) == (6, 6, 6)


def test_arrays_are_views_that_nobody_can_write() -> None:
    """Queued arrays are read-only views of the received bytes."""
    line = Line(transport=as_it_is)
    line.take(make_chunk())
    (item,) = line.parts.trainers.take()
    array = item.chunk.columns["obs/state"]
    assert not array.flags.owndata
    assert not array.flags.writeable


def test_a_chunk_without_rows_is_legal() -> None:
    """A chunk with episodes and statistics alone is queued and acked without changing the books."""
    line = Line()
    chunk = Chunk(sequence=1, generation=0)
    assert line.take(chunk) is None
    assert (line.session.acked_through, line.behavior.queue.queued_chunks) == (1, 1)
    assert line.parts.ledger.books(NAME).received == 0


def test_what_ends_between_look_and_booking_is_not_queued() -> None:
    """A chunk that waits is refused if its behavior ends, and not booked twice."""
    line = Line()
    message = encode_chunk(make_chunk(3))
    first = line.intake.examine(line.session, message, message.ByteSize())
    second = line.intake.examine(line.session, message, message.ByteSize())
    assert first is not None
    assert second is not None
    line.parts.trainers.finish()
    rejected = line.intake.settle(line.session, first)
    assert rejected is not None
    assert rejected.reason == "not_training"
    assert line.intake.settle(line.session, second) is None
    books = line.parts.ledger.books(NAME)
    assert (books.received, books.duplicate, books.dropped) == (3, 3, {"not_training": 3})


def test_versions_that_do_not_exist_are_malformed() -> None:
    """Versions above the newest published one are malformed, also by offset."""
    line = Line(newest_version=4)
    good = make_chunk(3, base_version=3)
    offsets = np.array([0, 1, 1], np.uint32)
    good.columns["version_offset"] = offsets
    good.roles["version_offset"] = good.roles["reward"]
    assert line.take(good) is None
    bad = make_chunk(3, base_version=4, sequence=2)
    bad.columns["version_offset"] = offsets
    bad.roles["version_offset"] = bad.roles["reward"]
    with pytest.raises(MalformedChunk, match="version 5"):
        line.take(bad)


@pytest.mark.parametrize("version", [0, 7, 2**63 + 5, 2**64 - 1])
def test_rows_cannot_act_before_there_is_a_policy(version: int) -> None:
    """Rows before the first publication, and versions beyond the trainer's range, are refused."""
    line = Line(newest_version=None)
    with pytest.raises(MalformedChunk, match=rf"version {version}, but no policy of {NAME}"):
        line.take(make_chunk(3, base_version=version))
    assert line.parts.ledger.books(NAME).received == 0
    assert line.behavior.queue.queued_chunks == 0
    assert line.take(Chunk(sequence=1, generation=1, base_version=version)) is None


@given(
    st.lists(
        st.tuples(st.sampled_from(["good", "nan", "old", "again", "gap", "train", "drop", "stop"]), st.integers(1, 9)),
        max_size=40,
    )
)
@settings(max_examples=60, deadline=None)
def test_the_books_balance_after_anything(events: list[tuple[str, int]]) -> None:
    """For any input, received = trained + dropped + queued + lost, and session and queue agree."""
    line = Line()
    line.parts.sessions.generation = 2
    ledger, trainers, queue, held = line.parts.ledger, line.parts.trainers, line.behavior.queue, 0
    for event, number in events:
        sequence = line.session.next_sequence
        if event == "train":
            held += sum(item.chunk.rows for item in trainers.take())
            part = held // 2
            trainers.settle(trained=part)
            held -= part
        elif event == "drop":
            part = min(held, number)
            trainers.settle(dropped={"stale": part})
            held -= part
        elif event == "stop":
            trainers.finish()
        elif event == "gap":
            with pytest.raises(SequenceGap):
                line.take(make_chunk(number, sequence=sequence + 1, generation=2))
        else:
            chunk = make_chunk(number, sequence=sequence, generation=1 if event == "old" else 2)
            if event == "nan":
                chunk.columns["reward"] = np.full(number, np.nan, np.float32)
            if event == "again" and sequence > 1:
                chunk.sequence = sequence - 1
            line.take(chunk)
        books = ledger.books(NAME)
        assert books.balanced
        assert books.received == line.session.accounts[0].received_steps
        assert books.queued == queue.queued_steps + held


@pytest.mark.parametrize("column", ["reward", "obs/state", "final_obs/state", "memory"])
@pytest.mark.parametrize(("value", "is_welcome"), [(LARGEST, True), (-LARGEST, True), (2e15, False), (-3e38, False)])
def test_the_bound(column: str, value: float, is_welcome: bool) -> None:
    """Numbers up to the bound are trained; a larger one refuses the chunk as an infinite one does."""
    parts = Parts()
    behavior = parts.declared(parts.open().session)
    chunk = make_chunk(3)
    chunk.columns["memory"] = np.zeros((2, 2), np.float32)
    array = chunk.columns[column].copy()
    array[-1] = value
    chunk.columns[column] = array
    verdict = judge(chunk, behavior, 0)
    if is_welcome:
        assert verdict is None
        return
    assert isinstance(verdict, Rejected)
    assert (verdict.reason, verdict.steps) == ("not_finite", 3)
    assert f"column {column}, row {len(array) - 1}: a value beyond 1e+15" in verdict.detail


LIMIT = 40


class Kept:
    """Keeps what was received, as `learner.shared.runfolder.received` does in a file without a limit."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.sessions: dict[bytes, dict[int, ReceivedCount]] = {}

    def begin(self, totals: dict[str, int], sessions: dict[bytes, Mapping[int, ReceivedCount]]) -> None:
        """Begins with the sessions that may return."""
        self.totals = dict(totals)
        self.sessions = {
            key: {index: replace(count, total=totals[count.behavior]) for index, count in counts.items()}
            for key, counts in sessions.items()
        }

    def note(
        self, session_id: str, index: int, behavior: str, *, total: int, steps: int, through: int, taken: int
    ) -> None:
        """Keeps the newest numbers."""
        self.totals[behavior] = total
        counts = self.sessions.setdefault(session_key_of(session_id), {})
        counts[index] = ReceivedCount(behavior, steps, through, total, taken)

    def end(self, session_id: str, taken: Mapping[int, int], *, has_left: bool) -> None:
        """Keeps what is known of a session that has ended."""
        counts = self.sessions.get(session_key_of(session_id), {})
        for index in counts if has_left else ():
            counts[index] = replace(counts[index], taken=taken[index], has_left=True)


class Start:
    """One start of the learner: its tables, its intake, its credit."""

    def __init__(self, generation: int, state: dict[str, Any] | None = None, kept: Kept | None = None) -> None:
        self.parts = Parts(generation=generation)
        if state is not None:
            restore(state, self.parts.behaviors, self.parts.sessions, self.parts.ledger)
        if kept is not None:
            self.parts.sessions.recover(Received(dict(kept.totals), dict(kept.sessions)))
            kept.begin(self.parts.ledger.received(), self.parts.sessions.received())
            self.parts.sessions.keep_record(kept)
        self.generation = generation
        self.intake = ChunkIntake(
            self.parts.behaviors,
            self.parts.sessions,
            self.parts.ledger,
            newest_version=lambda _: 0,
            order_numbers=lambda _, assignments: assignments,
            matches=GivenMatches(),
            on_agents=lambda: None,
            metrics=LearnerMetrics().intake,
        )
        self.allocator = CreditAllocator(self.parts.behaviors)


class Pair:
    """A learner that may crash, and an actor that obeys its credit and keeps its books.

    Args:
        kept: The learner's record of received steps; None for a learner that lost it.
    """

    def __init__(self, kept: Kept | None = None) -> None:
        self.kept = kept
        self.start = Start(1, kept=kept)
        self.session = self.start.parts.open().session
        self.behavior = self.start.parts.declared(self.session)
        self.start.parts.trainers.settle(pace=Pace(ahead_limit_steps=LIMIT))
        self.saved = self.snapshot()
        self.past_produced = self.past_received = 0  # in sessions that have ended
        self.unsaved = self.untold = 0  # not received in them; told to no learner that saved it, now and for ever
        self.begin()

    def begin(self) -> None:
        """Begins the books of a session."""
        self.produced = self.open = self.discarded = self.dropped = self.acked = self.credit = 0
        self.sequence = 1
        self.unsent: list[tuple[int, int]] = []
        self.unacked: list[tuple[int, int]] = []

    @property
    def account(self) -> Account:
        """Returns the learner's account."""
        return self.session.accounts[0]

    def snapshot(self) -> dict[str, Any]:
        """Takes a checkpoint."""
        parts = self.start.parts
        return snapshot(parts.behaviors, parts.sessions, parts.ledger)

    def counters(self) -> ActorCounters:
        """Returns the actor's report."""
        window = sum(rows for _, rows in self.unacked + self.unsent)
        return ActorCounters(
            0,
            produced=self.produced,
            open=self.open,
            discarded={"reset": self.discarded},
            dropped={"generation": self.dropped},
            unacked=window,
            acked=self.acked,
        )

    def check_fates(self) -> None:
        """Checks that each step that was taken has one fate."""
        through = self.session.acked_through
        present = sum(rows for sequence, rows in self.unacked + self.unsent if sequence > through)
        received = self.acked + self.unseen
        assert self.start.parts.ledger.books(NAME).received == received + self.past_received
        assert self.produced == received + self.discarded + self.dropped + self.open + present

    def check_taken(self) -> int:
        """Checks that the steps in the books add up to those taken; returns how many of these are in no book yet."""
        sessions, ledger = self.start.parts.sessions, self.start.parts.ledger
        taken, given_up = sessions.steps_taken(0), sessions.given_up(self.behavior).total
        assert taken == ledger.books(NAME).received + given_up + sessions.outstanding_steps(0)
        assert taken <= self.past_produced + self.produced, "steps were invented"
        return self.past_produced + self.produced - taken

    @property
    def unseen(self) -> int:
        """Returns the steps that were received and whose ack the actor has not seen."""
        return sum(rows for sequence, rows in self.unacked if sequence <= self.session.acked_through)

    def restart(self, opened: Opened) -> None:
        """Continues with another session; the last one has ended."""
        self.past_produced += self.produced
        self.past_received += self.acked + self.unseen
        self.unsaved += self.produced - self.acked - self.unseen
        self.session = opened.session
        self.behavior = self.start.parts.declared(self.session)
        self.begin()

    def on_leave(self, _number: int) -> None:
        """Ends the actor, with open steps and a window perhaps; another one comes."""
        self.start.parts.sessions.close(self.session, [self.counters()])
        self.restart(self.start.parts.open())

    def on_expire(self, number: int) -> None:
        """Ends the session without its actor, which returns or was killed."""
        sessions, through = self.start.parts.sessions, self.session.acked_through
        for _ in range(2):  # away, and gone
            self.session.lease_until = sessions.clock()
            sessions.expire()
        self.untold += 0 if number % 2 else self.produced
        resume = Resumption(self.session.session_id, 1, self.start.generation, through, (self.counters(),))
        self.restart(self.start.parts.open(resume=resume if number % 2 else None))

    def do(self, event: str, number: int) -> None:
        """Executes one event."""
        getattr(self, f"on_{event}")(number)

    def on_step(self, number: int) -> None:
        """Steps as far as credit allows."""
        steps = max(0, min(number, self.credit - self.produced))
        self.produced += steps
        self.open += steps

    def on_discard(self, number: int) -> None:
        """Discards open steps."""
        steps = min(number, self.open)
        self.open -= steps
        self.discarded += steps

    def on_seal(self, _number: int) -> None:
        """Closes what is open."""
        if self.open:
            self.unsent.append((self.sequence, self.open))
            self.sequence += 1
            self.open = 0

    def on_send(self, _number: int) -> None:
        """Sends a chunk; it arrives."""
        if not self.unsent:
            return
        sequence, rows = self.unsent.pop(0)
        self.unacked.append((sequence, rows))
        share = self.account.step_share
        assert share.settled + rows <= share.granted  # not even the slack is needed
        chunk = make_chunk(
            rows, sequence=sequence, generation=self.start.generation, produced_steps=self.produced,
            discarded={"reset": self.discarded},
        )  # fmt: skip
        message = encode_chunk(chunk)
        examined = self.start.intake.examine(self.session, message, message.ByteSize())
        assert examined is not None
        self.start.intake.settle(self.session, examined)

    def on_grant(self, _number: int) -> None:
        """Grants credit in a message that is lost."""
        self.start.allocator.grant(self.session, self.account)

    def on_ack(self, _number: int) -> None:
        """Acks settled steps, with credit."""
        granted = self.start.allocator.grant(self.session, self.account)
        assert granted is not None
        self.credit = max(self.credit, granted.steps_through)
        self.acked += sum(rows for sequence, rows in self.unacked if sequence <= self.session.acked_through)
        self.unacked = [(sequence, rows) for sequence, rows in self.unacked if sequence > self.session.acked_through]

    def on_report(self, _number: int) -> None:
        """Renews the lease."""
        self.start.parts.sessions.renew(self.session, [self.counters()])

    def on_train(self, _number: int) -> None:
        """Trains all that waits."""
        trainers = self.start.parts.trainers
        trainers.settle(trained=sum(item.chunk.rows for item in trainers.take()))

    def on_save(self, _number: int) -> None:
        """Saves a checkpoint."""
        self.saved, self.unsaved = self.snapshot(), 0

    def on_crash(self, number: int) -> None:
        """Restarts the learner; the actor resumes, clears its window, and discards open rows before or after."""
        if number % 2:
            self.on_discard(self.open)
        acked_through = min(sequence for sequence, _ in [*self.unacked, *self.unsent, (self.sequence, 0)]) - 1
        resume = Resumption(
            self.session.session_id, self.session.epoch, self.start.generation, acked_through, (self.counters(),)
        )
        self.start = Start(self.start.generation + 1, self.saved, self.kept)
        self.untold, self.unsaved = self.untold + self.unsaved, 0
        opened = self.start.parts.open(resume=resume)
        self.start.parts.trainers.settle(pace=Pace(ahead_limit_steps=LIMIT))
        if not opened.resumed:  # it began after the checkpoint
            self.restart(opened)
            return
        self.session = opened.session
        self.acked += sum(rows for sequence, rows in self.unacked if sequence <= opened.settled_through)
        self.unacked = [(sequence, rows) for sequence, rows in self.unacked if sequence > opened.settled_through]
        self.dropped += sum(rows for _, rows in self.unacked + self.unsent)
        self.unsent, self.unacked = [], []
        self.sequence = self.session.next_sequence
        self.behavior = self.start.parts.declared(self.session)
        self.credit = 0
        self.on_discard(self.open)


EVENTS = ["step", "step", "seal", "send", "send", "ack", "ack", "grant", "train", "discard", "report", "save", "crash"]
EVENTS += ["leave", "expire"]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 30)), max_size=80), st.booleans())
@settings(max_examples=300, deadline=None)
def test_an_actor_that_obeys_is_always_covered(events: list[tuple[str, int]], has_record: bool) -> None:
    """No chunk exceeds its grant over lost acks, lost grants, discards, checkpoints and crashes.

    With the record each step has one fate: what was taken was received or given up, or is at the actor. No step is
    invented, and at the end all are in the books but some that were not received: those of killed actors, and those that
    an actor which left told a learner that was killed before it saved.
    """
    pair = Pair(Kept() if has_record else None)
    for event, number in events:
        pair.do(event, number)
        books = pair.start.parts.ledger.books(NAME)
        assert books.balanced
        pair.check_taken()
        if has_record:
            pair.check_fates()
    # And it is never stuck: with everything delivered and trained there is credit for its next steps.
    for event in ("seal", "send", "send", "send", "train", "ack", "report", "ack"):
        for _ in range(len(pair.unsent) if event == "send" else 1):
            pair.do(event, 1)
    assert pair.credit - pair.produced >= step_allowance(1, 8)
    if has_record:
        pair.on_leave(0)
        assert pair.check_taken() <= pair.untold
        assert pair.start.parts.sessions.outstanding_steps(0) == 0


def test_the_counters_in_a_chunk_are_bounded_by_time() -> None:
    """A chunk that claims very many steps makes as many steps taken as its session's age allows."""
    line = Line()
    line.take(make_chunk(3, produced_steps=2**53, discarded={"reset": 2**53}))
    assert line.parts.sessions.steps_taken(0) <= 2 * CLAIMED_AT_ONCE


def test_replay_takes_rows_of_an_earlier_start() -> None:
    """Rows of an older generation are trained by replay, as those of the newest version at most and of no order."""
    for takes in (False, True):
        line = Line(newest_version=3)
        line.behavior.takes_any_generation = takes
        line.parts.sessions.generation = 2
        old = make_chunk(4, base_version=9, generation=1)
        old.columns["version_offset"] = np.arange(4, dtype=np.uint32)
        old.roles["version_offset"] = ColumnRole.STEP
        message = encode_chunk(old)
        examined = line.intake.examine(line.session, message, message.ByteSize())
        assert examined is not None
        rejected = line.intake.settle(line.session, examined)
        books = line.parts.ledger.books(NAME)
        if takes:
            assert rejected is None
            assert (books.queued, books.dropped) == (4, {})
            (item,) = line.parts.trainers.take()
            assert (item.chunk.generation, item.chunk.base_version) == (2, 3)
            assert "version_offset" not in item.chunk.columns
        else:
            assert rejected is not None
            assert (books.queued, books.dropped) == (0, {"generation": 4})


def test_spooled_steps_have_room_for_a_whole_chunk() -> None:
    """An actor that reports spooled steps gets credit for any chunk, however small its segments are, and no longer than that."""
    pair = Pair()
    pair.start.parts.trainers.settle(pace=Pace(ahead_limit_steps=1))
    account, allocator = pair.account, pair.start.allocator

    def granted() -> int:
        found = allocator.grant(pair.session, account)
        assert found is not None
        return found.steps_through

    before = granted()
    account.report(ActorCounters(0, produced=5000, spooled=5000))
    assert account.full_chunk_steps > 1000
    assert granted() >= before + min(5000, account.full_chunk_steps) - 1
    account.received_steps += 5000
    settled = account.step_share.settled
    account.report(ActorCounters(0, produced=5000, acked=5000))
    assert account.step_share.allowance == step_allowance(1, 8)
    assert granted() <= max(settled + step_allowance(1, 8) + LIMIT, account.granted_steps)


def test_kept_chunks_are_not_given_up() -> None:
    """At its return, an actor of replay gives up only open steps; what it keeps is settled when it arrives."""
    pair = Pair()
    account = pair.account
    account.received_steps = 10
    counters = ActorCounters(0, produced=40, open=3, unacked=20, acked=8, spooled=9)
    assert account.roll_back(counters, keeps=True) == 0
    assert (account.given_up_floor, account.spooled_steps) == (3, 27)
    assert account.step_share.settled == 13
    other = Pair().account
    other.received_steps = 10
    other.roll_back(counters, keeps=False)
    assert (other.given_up_floor, other.spooled_steps) == (30, 0)


def test_a_step_that_was_received_and_not_acked_has_one_fate() -> None:
    """A killed learner received 30 steps and did not ack them: they are lost there, and acked at the returning actor."""
    for has_state in (True, False):
        pair = Pair(Kept())
        for event in ("ack", "step", "seal", "send", *(["save"] if has_state else []), "step", "seal", "crash"):
            pair.do(event, 15)
        assert (pair.acked, pair.dropped) == (15, 15)
        assert pair.start.parts.ledger.books(NAME).lost == {"restart": 15}
        assert pair.account.step_share.settled == 30
        pair.check_fates()


def test_steps_past_the_credit_are_refused_and_not_booked() -> None:
    """Steps beyond the grant and one allowance end the stream without being booked."""
    pair = Pair()
    pair.on_ack(1)
    allowance = step_allowance(1, 8)
    assert pair.credit == allowance + LIMIT
    for sequence, rows in ((1, pair.credit), (2, allowance)):
        message = encode_chunk(make_chunk(rows, sequence=sequence))
        examined = pair.start.intake.examine(pair.session, message, message.ByteSize())
        assert examined is not None
        pair.start.intake.settle(pair.session, examined)
    message = encode_chunk(make_chunk(1, sequence=3))
    with pytest.raises(
        CreditExceeded, match=rf"follows {pair.credit + allowance} steps .* for only {pair.credit}:"
    ) as caught:
        pair.start.intake.examine(pair.session, message, message.ByteSize())
    assert caught.value.metadata["sequence"] == "3"
    books = pair.start.parts.ledger.books(NAME)
    assert books.received == books.queued == pair.credit + allowance
    assert pair.session.acked_through == 2
