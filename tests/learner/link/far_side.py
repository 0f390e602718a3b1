"""Plays either end of the link for tests of the other end."""

from __future__ import annotations

from collections import Counter, defaultdict

from learner.link.channel import Link
from learner.link.to_front import Cut, Done, Pace, Settled
from learner.link.to_trainers import Books, Declared, Experience, QueueFull
from learner.service.ingest.behaviors import BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.snapshots import snapshot


class Trainers:
    """Plays the trainers: takes messages, and sends those of a test.

    Args:
        link: To the service.

    Attributes:
        declared: The behaviors, in the order in which they were declared.
        full: Queues that had no room in a round.
        books: Answers to cuts.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._declared: list[Declared] = []
        self._full: list[QueueFull] = []
        self._books: list[Books] = []
        self._waiting: dict[int, list[Experience]] = defaultdict(list)
        self._through: Counter[int] = Counter()
        self._paces: dict[int, Pace] = {}

    @property
    def declared(self) -> list[Declared]:
        """Returns all declared behaviors."""
        self._receive()
        return self._declared

    @property
    def full(self) -> list[QueueFull]:
        """Returns all messages about a full queue."""
        self._receive()
        return self._full

    @property
    def books(self) -> list[Books]:
        """Returns all answers to cuts."""
        self._receive()
        return self._books

    def take(self, behavior: int = 0) -> list[Experience]:
        """Takes what waits; the service hears of it with the next `settle`."""
        self._receive()
        taken = self._waiting.pop(behavior, [])
        if taken:
            self._through[behavior] = taken[-1].sequence
        return taken

    def settle(
        self, behavior: int = 0, *, trained: int = 0, dropped: dict[str, int] | None = None, pace: Pace | None = None
    ) -> None:
        """Reports trained and dropped steps, with the last pace by default."""
        if pace is not None:
            self._paces[behavior] = pace
        pace = self._paces.get(behavior, Pace())
        self._link.to_front.send(Settled(behavior, self._through[behavior], trained, dropped or {}, pace))

    def finish(self, behavior: int = 0) -> None:
        """Ends training: what waits is dropped."""
        steps = sum(item.chunk.rows for item in self.take(behavior))
        self.settle(behavior, dropped={"not_training": steps})
        self._link.to_front.send(Done(behavior))

    def _receive(self) -> None:
        for message in self._link.to_trainers.receive():
            match message:
                case Declared():
                    self._declared.append(message)
                case Experience():
                    self._waiting[message.behavior].append(message)
                case QueueFull():
                    self._full.append(message)
                case Books():
                    self._books.append(message)


def serve(link: Link, behaviors: BehaviorTable, ledger: Ledger, sessions: SessionTable | None = None) -> None:
    """Plays the service: executes the trainers' messages immediately in their thread."""

    def carry_out() -> None:
        for message in link.to_front.receive():
            match message:
                case Settled():
                    behaviors.settle(message)
                case Done():
                    behaviors.end_training(message)
                case Cut(number):
                    assert sessions is not None
                    books = snapshot(behaviors, sessions, ledger)
                    link.to_trainers.send(Books(number, {**books, "status": {}}))

    link.to_front.connect(carry_out)
