"""Checks that the books in a run's status balance on both sides."""

from __future__ import annotations

from collections.abc import Iterable

from tests.e2e.state import ActorBooks, Count, State


def check_books(status: State) -> None:
    """Checks the two equations: that of the learner for each behavior, and that of each actor."""
    for row in status.behaviors:
        books = row.books
        fates = books.trained + total(books.dropped) + books.queued + total(books.lost)
        assert books.received == fates, f"the learner's books of {row.behavior} do not balance:\n{books}"
    for actor in status.actors:
        for entry in actor.books:
            assert entry.produced_steps == fates_of(entry), f"the books of {actor.actor_name} do not balance:\n{entry}"


def fates_of(books: ActorBooks) -> int:
    """Returns the sum of all that can become of a step on the actor's side."""
    given_up = total(books.discarded) + total(books.dropped)
    return books.open_steps + books.spooled_steps + books.unacked_steps + books.acked_steps + given_up


def total(counts: Iterable[Count]) -> int:
    """Returns the sum of counts by reason."""
    return sum(entry.steps for entry in counts)


def by_reason(counts: Iterable[Count]) -> dict[str, int]:
    """Returns counts by reason."""
    return {entry.reason: entry.steps for entry in counts}
