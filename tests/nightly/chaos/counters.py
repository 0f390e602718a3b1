"""Counters of a status and a scrape, and the equations between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from tests.e2e.state import State
from tests.exposition import samples

PREFIX = "rollcast_learner_env_steps_"
COUNTED = ("_total", "_count", "_bucket")


@dataclass(frozen=True, slots=True)
class Exposition:
    """One answer of /metrics."""

    generation: int
    counters: Mapping[str, float]
    books: Mapping[str, Mapping[str, float]]


class Counters:
    """Checks that counters never fall within one start of the learner."""

    def __init__(self) -> None:
        self._generation = 0
        self._values: dict[str, float] = {}

    def check(self, generation: int, values: Mapping[str, float]) -> None:
        """Compares with the last values.

        Raises:
            AssertionError: One fell, or the generation did.
        """
        before, self._values = (self._values, dict(values)) if generation == self._generation else ({}, dict(values))
        assert generation >= self._generation, f"generation {generation} after {self._generation}"
        self._generation = generation
        fallen = {name: (before[name], value) for name, value in values.items() if value < before.get(name, 0)}
        assert not fallen, f"counters fell in generation {generation}: {fallen}"


def counters_of(status: State) -> dict[str, float]:
    """Returns everything in a status that must never fall."""
    found: dict[str, float] = {"uptime": status.uptime_seconds}
    for row in status.behaviors:
        for name in ("version", "env_steps_trained", "env_steps_taken", "episodes"):
            found[f"{row.behavior} {name}"] = getattr(row, name)
        found[f"{row.behavior} ghost_steps"] = row.numbers.get("ghost_steps", 0.0)
        for name in ("received", "trained", "duplicate"):
            found[f"{row.behavior} books {name}"] = getattr(row.books, name)
        for name in ("dropped", "lost"):
            found |= {f"{row.behavior} {name} {count.reason}": count.steps for count in getattr(row.books, name)}
    for actor in status.actors:
        for books in actor.books:
            key = f"{actor.actor_name} {actor.session_id} {books.behavior_index}"
            found |= {f"{key} {name}": getattr(books, f"{name}_steps") for name in ("produced", "acked", "ghost")}
    return found


def parsed(text: bytes) -> Exposition:
    """Reads an answer of /metrics."""
    generation = 0
    counters: dict[str, float] = {}
    books: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for (name, labels), value in samples(text).items():
        if name == "rollcast_learner_generation":
            generation = int(value)
        if name.endswith(COUNTED):
            counters[f"{name} {labels}"] = value
        term = name.removeprefix(PREFIX).removesuffix("_total")
        if name.startswith(PREFIX) and term in {"received", "trained", "dropped", "queued", "lost"}:
            books[dict(labels)["behavior"]][term] += value
    return Exposition(generation, counters, books)


def check_exposition(scraped: Exposition) -> None:
    """Checks the learner's equation for each behavior.

    Raises:
        AssertionError: It does not hold.
    """
    for behavior, terms in scraped.books.items():
        fates = terms["trained"] + terms["dropped"] + terms["queued"] + terms["lost"]
        assert terms["received"] == fates, f"the scraped books of {behavior} do not balance: {dict(terms)}"
