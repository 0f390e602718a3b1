"""Messages between several ranks of trainers: rank 0 conducts, and the others do what it does, in the same order."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class TurnKind(enum.StrEnum):
    """An action that all ranks take."""

    LOAD = "load"
    """Take over the state of rank 0."""
    COLLECT = "collect"
    """Take experience up to a sequence number."""
    RELEASE = "release"
    """End a round of lock-step, which has experience up to a sequence number."""
    UPDATE = "update"
    """Train on what was collected."""
    SET = "set"
    """Take over changed settings."""
    FINISH = "finish"
    """End the training of the behavior."""


@dataclass(frozen=True, slots=True)
class Turn:
    """Tells the other ranks what rank 0 does; it follows the experience that it concerns.

    Attributes:
        number: Grows by one with each turn of the run, from 1.
        behavior: Index of the behavior.
        kind: What is done.
        through: Sequence of the newest chunk that is taken; 0 if none is.
        players: Sessions whose experience belongs to the round, with RELEASE.
        settings: The behavior's settings from now on, as JSON, with SET: the service passes them on, and must not read them.
    """

    number: int
    behavior: int
    kind: TurnKind
    through: int = 0
    players: frozenset[str] = frozenset()
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Over:
    """Tells a rank that the run has ended on purpose, so that it ends with code 0 and is not started again."""


@dataclass(frozen=True, slots=True)
class Follow:
    """Tells a rank other than 0 what rank 0 has read from the run folder.

    Attributes:
        generation: Number of this start.
        seed: Seed of the run.
    """

    generation: int
    seed: int
