"""Tests the ledger: every step has exactly one outcome."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from rollcast.history import History

from learner.service.ingest.ledger import Ledger, LedgerError

NAME = "CartPole"
STEPS = st.integers(0, 1000)
WORDS = st.sampled_from(["stale", "not_finite", "generation", "mate"])


class LedgerMachine(RuleBasedStateMachine):
    """Makes any sequence of entries, including restarts from a checkpoint."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger()
        self.checkpoint = self.ledger.state_dict()
        self.received = 0
        self.received_then = 0

    @property
    def queued(self) -> int:
        """Returns the steps without an outcome."""
        return self.ledger.books(NAME).queued

    @rule(steps=STEPS)
    def enqueue(self, steps: int) -> None:
        """Accepts a chunk."""
        self.ledger.enqueue(NAME, steps)
        self.received += steps

    @rule(steps=STEPS, reason=WORDS)
    def reject(self, steps: int, reason: str) -> None:
        """Refuses a chunk."""
        self.ledger.reject(NAME, reason, steps)
        self.received += steps

    @precondition(lambda self: self.queued > 0)
    @rule(data=st.data())
    def train(self, data: st.DataObject) -> None:
        """Completes an update."""
        self.ledger.settle(NAME, data.draw(st.integers(0, self.queued)), {})

    @precondition(lambda self: self.queued > 0)
    @rule(data=st.data(), reason=WORDS)
    def drop(self, data: st.DataObject, reason: str) -> None:
        """Drops rows."""
        self.ledger.settle(NAME, 0, {reason: data.draw(st.integers(0, self.queued))})

    @precondition(lambda self: self.queued > 0)
    @rule(data=st.data(), reason=WORDS)
    def settle(self, data: st.DataObject, reason: str) -> None:
        """Settles trained and dropped rows together."""
        trained = data.draw(st.integers(0, self.queued))
        self.ledger.settle(NAME, trained, {reason: data.draw(st.integers(0, self.queued - trained)), "too_long": 0})

    @rule(extra=st.integers(1, 100))
    def overdraw(self, extra: int) -> None:
        """Checks that entries with too many steps are refused and change nothing."""
        before = self.ledger.books(NAME)
        entries: tuple[Callable[[int], None], ...] = (
            lambda steps: self.ledger.settle(NAME, steps, {}),
            lambda steps: self.ledger.settle(NAME, 0, {"stale": steps}),
            lambda steps: self.ledger.settle(NAME, steps - steps // 2, {"stale": steps // 2}),
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
        """Counts steps that an actor reports as acked and this ledger lacks."""
        self.ledger.lose(NAME, "rollback", steps, queued=False)
        self.received += steps

    @rule(steps=STEPS)
    def duplicate(self, steps: int) -> None:
        """Counts a duplicate chunk, which is outside the equation."""
        self.ledger.duplicate(NAME, steps)

    @rule()
    def save(self) -> None:
        """Saves a checkpoint."""
        self.checkpoint, self.received_then = self.ledger.state_dict(), self.received

    @rule()
    def restart(self) -> None:
        """Restarts from the checkpoint."""
        before = self.ledger.books(NAME)
        self.ledger = Ledger.from_state(self.checkpoint)
        after = self.ledger.books(NAME)
        self.received = self.received_then
        assert after.queued == 0
        assert after.trained <= before.trained

    @invariant()
    def balanced(self) -> None:
        """Checks that received = trained + dropped + queued + lost."""
        books = self.ledger.books(NAME)
        assert books.balanced
        assert books.received == self.received
        assert books.queued == self.ledger.queued(NAME)


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_books_of_nothing_are_zero() -> None:
    """An unknown behavior has empty books and is not listed."""
    ledger = Ledger()
    assert ledger.books("nobody").balanced
    assert (ledger.received_steps("nobody"), ledger.untimed_steps("nobody"), ledger.queued("nobody")) == (0, 0, 0)
    assert ledger.behaviors() == ()


def test_queued_steps_of_the_old_process_are_lost_by_the_restart() -> None:
    """Steps that were queued in the checkpoint are lost by the restart, in addition to those of earlier restarts."""
    ledger = Ledger()
    ledger.enqueue(NAME, 10)
    ledger.settle(NAME, 4, {})
    ledger.duplicate(NAME, 3)
    again = Ledger.from_state(ledger.state_dict())
    books = again.books(NAME)
    assert (books.received, books.trained, books.queued, books.lost) == (10, 4, 0, {"restart": 6})
    assert books.duplicate == 3
    again.enqueue(NAME, 5)
    third = Ledger.from_state(again.state_dict()).books(NAME)
    assert (third.received, third.lost) == (15, {"restart": 11})


def test_duplicates_add_up_outside_the_equation() -> None:
    """Steps of chunks that came twice are counted, and kept by a checkpoint."""
    ledger = Ledger()
    ledger.duplicate(NAME, 2)
    ledger.duplicate(NAME, 3)
    books = Ledger.from_state(ledger.state_dict()).books(NAME)
    assert (books.duplicate, books.received, books.balanced) == (5, 0, True)


def test_a_dropped_reason_survives_a_restart() -> None:
    """A checkpoint keeps dropped steps by reason."""
    ledger = Ledger()
    ledger.reject(NAME, "stale", 2)
    ledger.reject(NAME, "mate", 3)
    assert Ledger.from_state(ledger.state_dict()).books(NAME).dropped == {"stale": 2, "mate": 3}
    assert ledger.received_steps(NAME) == 5


def test_a_checkpoint_whose_books_do_not_balance_is_refused() -> None:
    """Unbalanced books in a checkpoint are an error that names the behavior."""
    ledger = Ledger()
    ledger.enqueue(NAME, 10)
    state = ledger.state_dict()
    state[NAME]["received"] = 11
    with pytest.raises(LedgerError, match=NAME):
        Ledger.from_state(state)


def test_the_record_names_what_the_checkpoint_lacks() -> None:
    """Steps in the record and not in the loaded books are lost{restart}, for behaviors of which they know nothing too."""
    ledger = Ledger()
    ledger.enqueue(NAME, 10)
    ledger.settle(NAME, 4, {})
    again = Ledger.from_state(ledger.state_dict())
    assert again.recover({NAME: 25, "younger": 7, "older": 0}) == {NAME: 15, "younger": 7}
    books, younger = again.books(NAME), again.books("younger")
    assert (books.received, books.trained, books.lost, books.balanced) == (25, 4, {"restart": 21}, True)
    assert (younger.received, younger.lost, younger.balanced) == (7, {"restart": 7}, True)
    assert (again.untimed_steps(NAME), again.untimed_steps("younger")) == (15, 7)
    assert Ledger.from_state(again.state_dict()).untimed_steps(NAME) == 15


def test_unknown_sessions_stand_outside_the_equation() -> None:
    """The number of sessions that have not returned is not part of the equation."""
    ledger = Ledger()
    ledger.unknown(NAME, 3)
    assert ledger.books(NAME).unknown_sessions == 3
    assert ledger.books(NAME).balanced


def test_a_snapshot_is_one_moment() -> None:
    """A snapshot is consistent while another thread writes."""
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


def test_losses_are_in_the_history(tmp_path: Path) -> None:
    """The history names the steps that an event and a restart lost."""
    ledger = Ledger(History(tmp_path / "learner.jsonl"))
    ledger.enqueue(NAME, 5)
    ledger.lose(NAME, "rollback", 2, queued=True)
    ledger.load_state_dict(ledger.state_dict())
    lines = [json.loads(line) for line in (tmp_path / "learner.jsonl").read_text().splitlines()]
    found = [(line["event"], line["behavior"], line["reason"], line["steps"], line["queued"]) for line in lines]
    assert found == [("lost", NAME, "rollback", 2, True), ("lost", NAME, "restart", 3, True)]
