"""The books: one step has one fate, at every moment."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from learner.ingest.ledger import Ledger, LedgerError

NAME = "CartPole"
STEPS = st.integers(0, 1000)
WORDS = st.sampled_from(["stale", "not_finite", "generation"])


class LedgerMachine(RuleBasedStateMachine):
    """Any sequence of entries, among them a restart from a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.checkpoint = self.ledger.state_dict()
        self.received = 0
        self.received_then = 0

    @property
    def queued(self) -> int:
        """Steps whose fate is open."""
        return self.ledger.books(NAME).queued

    @rule(steps=STEPS)
    def enqueue(self, steps: int) -> None:
        """A chunk is accepted."""
        self.ledger.enqueue(NAME, steps)
        self.received += steps

    @rule(steps=STEPS, reason=WORDS)
    def reject(self, steps: int, reason: str) -> None:
        """A chunk is refused."""
        self.ledger.reject(NAME, reason, steps)
        self.received += steps

    @precondition(lambda self: self.queued > 0)
    @rule(data=st.data())
    def train(self, data: st.DataObject) -> None:
        """An update completes."""
        self.ledger.trained(NAME, data.draw(st.integers(0, self.queued)))

    @precondition(lambda self: self.queued > 0)
    @rule(data=st.data(), reason=WORDS)
    def drop(self, data: st.DataObject, reason: str) -> None:
        """A trainer drops rows."""
        self.ledger.drop_queued(NAME, reason, data.draw(st.integers(0, self.queued)))

    @rule(extra=st.integers(1, 100))
    def overdraw(self, extra: int) -> None:
        """Entries that would make up steps are refused, and change nothing."""
        before = self.ledger.books(NAME)
        entries: tuple[Callable[[int], None], ...] = (
            lambda steps: self.ledger.trained(NAME, steps),
            lambda steps: self.ledger.drop_queued(NAME, "stale", steps),
            lambda steps: self.ledger.lose(NAME, "event", steps, queued=True),
        )
        for entry in entries:
            with pytest.raises(LedgerError):
                entry(self.queued + extra)
            with pytest.raises(LedgerError):
                entry(-extra)
        assert before == self.ledger.books(NAME)

    @rule(steps=STEPS)
    def lose(self, steps: int) -> None:
        """An actor knows of steps that these books never saw."""
        self.ledger.lose(NAME, "rollback", steps, queued=False)
        self.received += steps

    @rule(steps=STEPS)
    def duplicate(self, steps: int) -> None:
        """A chunk comes twice: outside the equation."""
        self.ledger.duplicate(NAME, steps)

    @rule()
    def save(self) -> None:
        """A checkpoint is written."""
        self.checkpoint, self.received_then = self.ledger.state_dict(), self.received

    @rule()
    def restart(self) -> None:
        """The learner ends and comes back from its checkpoint."""
        before = self.ledger.books(NAME)
        self.ledger = Ledger.from_state(self.checkpoint)
        after = self.ledger.books(NAME)
        self.received = self.received_then
        assert after.queued == 0
        assert after.trained <= before.trained

    @invariant()
    def balanced(self) -> None:
        """Received = trained + dropped + queued + lost."""
        books = self.ledger.books(NAME)
        assert books.balanced
        assert books.received == self.received


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_books_of_nothing_are_zero() -> None:
    """A behavior that nobody mentioned has empty, balanced books, and is not listed."""
    ledger = Ledger()
    assert ledger.books("nobody").balanced
    assert ledger.behaviors() == ()


def test_queued_steps_of_the_old_process_are_lost_by_the_restart() -> None:
    """What waited when the checkpoint was written went down with the process."""
    ledger = Ledger()
    ledger.enqueue(NAME, 10)
    ledger.trained(NAME, 4)
    again = Ledger.from_state(ledger.state_dict())
    books = again.books(NAME)
    assert (books.received, books.trained, books.queued, books.lost) == (10, 4, 0, {"restart": 6})


def test_a_checkpoint_whose_books_do_not_balance_is_refused() -> None:
    """Damaged books are an error that names the behavior, not a wrong number later on."""
    ledger = Ledger()
    ledger.enqueue(NAME, 10)
    state = ledger.state_dict()
    state[NAME]["received"] = 11
    with pytest.raises(LedgerError, match=NAME):
        Ledger.from_state(state)


def test_unknown_sessions_stand_outside_the_equation() -> None:
    """The number of sessions that have not come back is shown, and is no step."""
    ledger = Ledger()
    ledger.unknown(NAME, 3)
    assert ledger.books(NAME).unknown_sessions == 3
    assert ledger.books(NAME).balanced


def test_a_snapshot_is_one_moment() -> None:
    """A reader that holds the lock sees no half-made entry, however fast another thread writes."""
    ledger = Ledger()
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            with ledger.lock:
                ledger.enqueue("a", 1)
                ledger.enqueue("b", 1)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(300):
            state = ledger.state_dict()
            assert state.get("a", {}).get("received") == state.get("b", {}).get("received")
    finally:
        stop.set()
        writer.join()
