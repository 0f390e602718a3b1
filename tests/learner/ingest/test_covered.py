"""Credit is enforced, and never against an actor that obeys it: whatever is lost, repeated, given up or restarted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.errors import CreditExceeded
from rollcast.trajectories import encode_chunk

from learner.ingest.credit import step_allowance
from learner.ingest.grants import CreditAllocator
from learner.ingest.intake import ChunkIntake
from learner.ingest.session import Account, ActorCounters
from learner.ingest.sessions import Resumption, restore, snapshot
from learner.link.experience import Pace
from learner.observe.metrics.learner import LearnerMetrics
from tests.learner.ingest.parts import NAME, Parts, make_chunk

LIMIT = 40


class Start:
    """One start of the learner: its tables, its intake, its office."""

    def __init__(self, generation: int, state: dict[str, Any] | None = None) -> None:
        self.parts = Parts(generation=generation)
        if state is not None:
            restore(state, self.parts.behaviors, self.parts.sessions, self.parts.ledger)
        self.generation = generation
        self.intake = ChunkIntake(
            self.parts.behaviors,
            self.parts.sessions,
            self.parts.ledger,
            newest_version=lambda _: 0,
            metrics=LearnerMetrics().intake,
        )
        self.allocator = CreditAllocator(self.parts.behaviors)


class Pair:
    """A learner that may crash, and an actor that obeys its credit and keeps its books."""

    def __init__(self) -> None:
        self.start = Start(1)
        self.session = self.start.parts.open().session
        self.behavior = self.start.parts.declared(self.session)
        self.behavior.queue.set_pace(Pace(ahead_limit_steps=LIMIT))
        self.saved = self.snapshot()
        self.produced = self.open = self.discarded = self.dropped = self.acked = self.credit = 0
        self.sequence = 1
        self.unsent: list[tuple[int, int]] = []
        self.unacked: list[tuple[int, int]] = []

    @property
    def account(self) -> Account:
        """The learner's side."""
        return self.session.accounts[0]

    def snapshot(self) -> dict[str, Any]:
        """Takes a checkpoint."""
        parts = self.start.parts
        return snapshot(parts.behaviors, parts.sessions, parts.ledger)

    def counters(self) -> ActorCounters:
        """The actor's report."""
        window = sum(rows for _, rows in self.unacked + self.unsent)
        return ActorCounters(
            0, self.produced, self.open, {"reset": self.discarded}, {"generation": self.dropped}, window, self.acked
        )

    def do(self, event: str, number: int) -> None:
        """Lets one thing happen."""
        getattr(self, f"on_{event}")(number)

    def on_step(self, number: int) -> None:
        """Steps as far as credit allows."""
        steps = max(0, min(number, self.credit - self.produced))
        self.produced += steps
        self.open += steps

    def on_discard(self, number: int) -> None:
        """Gives open steps up."""
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
        """Grants; the message is lost."""
        self.start.allocator.grant(self.session, self.account)

    def on_ack(self, _number: int) -> None:
        """Acks what was settled, with credit."""
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
        steps = sum(item.chunk.rows for item in self.behavior.queue.get())
        self.start.parts.ledger.trained(NAME, steps)
        self.behavior.queue.set_pace(Pace(ahead_limit_steps=LIMIT))

    def on_save(self, _number: int) -> None:
        """Saves a checkpoint."""
        self.saved = self.snapshot()

    def on_crash(self, number: int) -> None:
        """Starts the learner anew; the actor resumes, drops its window, and its open rows before or after that."""
        if number % 2:
            self.on_discard(self.open)
        resume = Resumption(
            self.session.session_id, self.session.epoch, self.start.generation, self.sequence - 1, (self.counters(),)
        )
        self.start = Start(self.start.generation + 1, self.saved)
        opened = self.start.parts.open(resume=resume)
        assert opened.resumed
        self.session = opened.session
        self.dropped += sum(rows for _, rows in self.unacked + self.unsent)
        self.unsent, self.unacked = [], []
        self.sequence = self.session.next_sequence
        self.behavior = self.start.parts.declared(self.session)
        self.behavior.queue.set_pace(Pace(ahead_limit_steps=LIMIT))
        self.credit = 0
        self.on_discard(self.open)


EVENTS = ["step", "step", "seal", "send", "send", "ack", "ack", "grant", "train", "discard", "report", "save", "crash"]


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(1, 30)), max_size=80))
@settings(max_examples=200, deadline=None)
def test_an_actor_that_obeys_is_always_covered(events: list[tuple[str, int]]) -> None:
    """Over lost acks, lost grants, given up steps, checkpoints and crashes no chunk of it is ever past its grant."""
    pair = Pair()
    for event, number in events:
        pair.do(event, number)
        books = pair.start.parts.ledger.books(NAME)
        assert books.balanced
    # And it is never stuck: with everything delivered and trained there is credit for its next steps.
    for event in ("seal", "send", "send", "send", "train", "ack", "report", "ack"):
        for _ in range(len(pair.unsent) if event == "send" else 1):
            pair.do(event, 1)
    assert pair.credit - pair.produced >= step_allowance(1, 8)


def test_steps_whose_ack_was_lost_with_the_learner_count_once() -> None:
    """They are in the checkpoint as received, and the actor drops them: credit and losses take them once."""
    pair = Pair()
    for event in ("ack", "step", "seal", "send", "save", "crash"):
        pair.do(event, 30)
    account = pair.account
    assert (pair.acked, pair.dropped, account.received_steps) == (0, 30, 30)
    assert (account.twice_steps, account.step_share.settled) == (30, 30)
    for event in (
        "ack",
        "save",
        "step",
        "seal",
        "send",
        "ack",
        "crash",
    ):  # of these eight steps the last checkpoint has none
        pair.do(event, 8)
    assert pair.start.parts.ledger.books(NAME).lost == {"restart": 30, "rollback": 8}
    assert pair.account.step_share.settled == 38


def test_steps_past_the_credit_are_refused_and_not_booked() -> None:
    """One allowance beyond the grant is borne; more ends the stream, and nothing of it is in the books."""
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
    with pytest.raises(CreditExceeded, match=rf"after {pair.credit + allowance} steps .* for {pair.credit}") as caught:
        pair.start.intake.examine(pair.session, message, message.ByteSize())
    assert caught.value.metadata["sequence"] == "3"
    books = pair.start.parts.ledger.books(NAME)
    assert books.received == books.queued == pair.credit + allowance
    assert pair.session.acked_through == 2
