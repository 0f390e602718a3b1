"""What the checker reports."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass

from tests.nightly.chaos.checker.reading import Line

MOST_LINES = 12


class Invariant(enum.IntEnum):
    """What must hold in every run."""

    TRAINED_ONCE = 1
    """A segment of a chunk is in at most one completed update of the surviving lineage."""
    MADE_BY_AN_ACTOR = 2
    """Every trained digest was made by an actor."""
    ACKED_HAS_A_FATE = 3
    """Every ack follows queued or dropped, and every acked step has exactly one fate."""
    VERSIONS_GROW = 4
    """Versions never fall in one actor process, behavior id and generation."""
    FENCED = 5
    """Nothing of an older epoch counts after the fence."""
    LAG_IS_LIMITED = 6
    """The policy lag of trained rows is within the limit."""
    BOOKS_ARE_SUMS = 7
    """The books of both sides are the sums of their histories."""


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that should never be."""

    invariant: Invariant
    what: str
    lines: tuple[Line, ...]

    def __str__(self) -> str:
        shown = [f"    {line}" for line in self.lines[:MOST_LINES]]
        more = len(self.lines) - MOST_LINES
        if more > 0:
            shown.append(f"    ... and {more} more lines")
        return "\n".join([f"({int(self.invariant)}) {self.invariant.name.lower()}: {self.what}", *shown])


def report(violations: Iterable[Violation]) -> str:
    """Returns all violations as text."""
    return "\n".join(map(str, violations))
