"""Tests the books: every step has exactly one outcome."""

from __future__ import annotations

import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rollcast.v1 import trajectory_pb2

from actor_client.connection.books import Books, BooksView
from actor_client.connection.gate import Gate
from actor_client.connection.window import OutgoingChunk, SendWindow

REASONS = st.sampled_from(["env_error", "reset", "generation"])


def test_books_refuse_to_lose_count() -> None:
    """Moving more steps out of a state than it holds is an error."""
    books = Books()
    books.produced(3)
    with pytest.raises(ValueError, match="4 steps cannot be subtracted from the 3 that are open"):
        books.seal(4)
    with pytest.raises(ValueError, match="unacked"):
        books.acked(1)
    with pytest.raises(ValueError, match="-1 steps"):
        books.discard("reset", -1)
    assert books.balanced


def test_views_add_up() -> None:
    """The sum of several teams' books adds up the reasons."""
    first, second = Books(), Books()
    for books, reason in ((first, "reset"), (second, "env_error")):
        books.produced(5)
        books.discard(reason, 2)
        books.discard("generation", 1)
        books.ghost(4)
    total = first.view() + second.view()
    assert total == BooksView(
        produced=10, open=4, discarded={"reset": 2, "env_error": 2, "generation": 2}, dropped={}, ghost=8
    )
    message = total.to_message(3, 7)
    assert (message.behavior_index, message.agents, message.produced_steps, message.ghost_steps) == (3, 7, 10, 8)
    assert {count.reason: count.steps for count in message.discarded} == total.discarded


def test_books_balance_at_every_moment_while_two_threads_write() -> None:
    """Every snapshot of the books balances while two threads write to them."""
    books = Books()
    done = threading.Event()

    def acks() -> None:
        while not done.is_set() or books.view().unacked:
            if books.view().unacked:
                books.acked(1)

    thread = threading.Thread(target=acks)
    thread.start()
    for _ in range(2000):
        books.produced(1)
        books.seal(1)
        assert books.balanced
    done.set()
    thread.join()
    assert books.view() == BooksView(produced=2000, acked=2000)


OUTAGE_BYTES = 60


class Owner:
    """The behavior of chunks; its gate may be replaced."""

    def __init__(self, machine: Upload, index: int) -> None:
        self.machine = machine
        self.index = index

    @property
    def gate(self) -> Gate:
        """Returns the present gate."""
        return self.machine.gates[self.index]

    def may_send(self, steps: int) -> bool:
        """Returns whether credit suffices."""
        return self.machine.books[self.index].sent_steps + steps <= self.gate.steps_through


class Upload(RuleBasedStateMachine):
    """Compares an actor's window and books with a learner that acks late, disconnects, restarts and loses sessions.

    The second behavior has replay memory: it records during outages, and keeps its chunks over a restart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.window = SendWindow()
        self.gates = [Gate(1), Gate(1)]
        self.books = [Books(), Books()]
        self.past = [BooksView(), BooksView()]
        self.ghosts = [0, 0]
        self.taken: dict[int, int] = {}  # what the learner of this session took, by sequence
        self.rows: dict[int, tuple[int, int]] = {}  # behavior and rows of each chunk made
        self.received = [0, 0]  # by the learner in this session
        self.owners = [Owner(self, 0), Owner(self, 1)]
        self.has_forgotten = False
        self.wire: list[OutgoingChunk] = []  # sent and not yet taken
        self.expected = 1
        self.made = 0

    @rule(behavior=st.integers(0, 1), steps=st.integers(1, 20))
    def produce(self, behavior: int, steps: int) -> None:
        """Records steps."""
        self.books[behavior].produced(steps)

    @rule(behavior=st.integers(0, 1), steps=st.integers(1, 20))
    def play(self, behavior: int, steps: int) -> None:
        """Plays as an opponent."""
        self.books[behavior].ghost(steps)
        self.ghosts[behavior] += steps

    @rule(behavior=st.integers(0, 1), reason=REASONS, share=st.floats(0, 1))
    def discard(self, behavior: int, reason: str, share: float) -> None:
        """Discards open rows."""
        self.books[behavior].discard(reason, int(self.books[behavior].view().open * share))

    @rule(behavior=st.integers(0, 1), share=st.floats(0, 1), is_outage=st.booleans())
    def seal(self, behavior: int, share: float, is_outage: bool) -> None:
        """Makes a chunk, which may be empty."""
        rows = int(self.books[behavior].view().open * share)
        self.made += 1
        chunk = trajectory_pb2.Chunk(rows=rows, produced_steps=self.made, sequence=1 << 34)
        self.rows[self.made] = (behavior, rows)
        self.books[behavior].seal(rows)
        request = trajectory_pb2.UploadRequest(chunk=chunk)
        owner = self.owners[behavior]
        outgoing = OutgoingChunk(request, self.gates[behavior], self.books[behavior], rows, chunk.ByteSize(), owner)
        if is_outage and behavior == 1:
            self.window.spool(outgoing, OUTAGE_BYTES)
            assert self.window.spooled_bytes <= OUTAGE_BYTES
        else:
            self.window.put(outgoing)

    @rule(behavior=st.integers(0, 1), more=st.integers(1, 60))
    def grant(self, behavior: int, more: int) -> None:
        """Grants bytes of credit."""
        gate = self.gates[behavior]
        gate.grant(
            trajectory_pb2.Credit(bytes_through=gate.bytes_through + more, steps_through=gate.steps_through + more)
        )

    @rule()
    def transmit(self) -> None:
        """Puts a chunk on the wire."""
        outgoing = self.window.take()
        if outgoing is not None:
            assert outgoing.gate.sent_bytes <= outgoing.gate.bytes_through
            self.wire.append(outgoing)

    @precondition(lambda self: self.wire)
    @rule()
    def arrive(self) -> None:
        """Takes a chunk from the wire: the next one, or a duplicate."""
        outgoing = self.wire.pop(0)
        assert outgoing.sequence <= self.expected
        if outgoing.sequence == self.expected:
            self.taken[outgoing.sequence] = outgoing.request.chunk.produced_steps
            self.expected += 1
            behavior, rows = self.rows[outgoing.request.chunk.produced_steps]
            self.received[behavior] += rows

    @rule(share=st.floats(0, 1))
    def ack(self, share: float) -> None:
        """Delivers an ack, which may be older than the newest one."""
        self.window.ack(int((self.expected - 1) * share))

    @rule()
    def break_off(self) -> None:
        """Breaks the stream: the chunks on the wire are lost, and the next stream resumes at the learner's sequence."""
        self.wire.clear()
        self.window.rewind(self.expected)

    @rule(back=st.integers(0, 3))
    def restart(self, back: int) -> None:
        """Restarts the learner from a checkpoint: the window is cleared, and sequence numbers may go back."""
        self.wire.clear()
        self.expected = max(1, self.expected - back)
        self.taken = {sequence: made for sequence, made in self.taken.items() if sequence < self.expected}
        self.gates = [Gate(2), Gate(2)]
        self.has_forgotten |= back > 0
        replayed = self.owners[1]
        self.window.clear(
            "generation",
            self.expected,
            settled_through=self.expected - 1,
            keeps=lambda outgoing: outgoing.owner is replayed,
        )

    @rule(is_told=st.booleans())
    def lose_session(self, is_told: bool) -> None:
        """Ends the session; the learner may still know what it received."""
        self.wire.clear()
        through = self.expected - 1 if is_told else 0
        self.has_forgotten |= not is_told
        self.expected = 1
        self.taken = {}
        self.gates = [Gate(1), Gate(1)]
        self.window.clear("session_lost", 1, settled_through=through)
        for index, books in enumerate(self.books):
            books.discard("session_lost", books.view().open)
            if not self.has_forgotten:
                assert books.view().acked == self.received[index], "what was received is acked and nothing else"
            self.past[index] += books.view()
        self.books = [Books(), Books()]
        self.received = [0, 0]
        self.has_forgotten = False

    @invariant()
    def balanced(self) -> None:
        """Checks that the books balance and that all unacked steps are in the window."""
        assert all(books.balanced for books in self.books)
        assert all(view.balanced and not (view.open or view.unacked or view.spooled) for view in self.past)
        assert sum(books.view().unacked for books in self.books) == sum(
            outgoing.rows for outgoing in (*self.window._sent, *self.window._waiting)
        )
        assert [books.view().spooled for books in self.books] == [
            0,
            sum(outgoing.rows for outgoing in self.window._spool),
        ]
        assert self.window.spooled_bytes == sum(outgoing.size_bytes for outgoing in self.window._spool)

    @invariant()
    def each_step_has_one_fate(self) -> None:
        """Checks that the learner received what is acked, and of the window only what it knows; nothing that was dropped."""
        if self.has_forgotten:
            return
        for index, books in enumerate(self.books):
            present = sum(
                outgoing.rows for outgoing in self.window._sent
                if outgoing.sequence < self.expected and outgoing.owner is self.owners[index]
            )  # fmt: skip
            assert self.received[index] == books.view().acked + present

    @invariant()
    def ghosts_are_counted_apart(self) -> None:
        """Checks that opponents' steps are in no count but their own."""
        for past, books, ghosts in zip(self.past, self.books, self.ghosts, strict=True):
            assert (past + books.view()).ghost == ghosts

    @invariant()
    def nothing_twice(self) -> None:
        """Checks that the learner has every chunk once, without gaps and in order."""
        assert sorted(self.taken) == list(range(min(self.taken, default=1), self.expected))
        assert len(set(self.taken.values())) == len(self.taken)

    @invariant()
    def bytes_add_up(self) -> None:
        """Checks that the window's size is the sum of its chunks and that waiting chunks count once."""
        assert self.window.unacked_bytes >= 0
        assert all(gate.waiting_bytes >= 0 for gate in self.gates)
        assert not self.window.empty or self.window.unacked_bytes == 0
        assert self.window.acked_through < self.window.next_sequence


Upload.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestUpload = Upload.TestCase
