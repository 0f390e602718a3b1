"""What an evaluation came to."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk


@dataclass(slots=True, eq=False)
class Order:
    """A share of an evaluation: so many whole episodes of each behavior id of a session.

    Attributes:
        session_id: whose.
        episodes: of each behavior id.
        versions: generation and version of the policy of each behavior to be measured; others act with their newest.
        is_deterministic: the mode of the distribution acts.
        assignment_id: what the service sent it as, and what comes back in records; 0 before it was sent.
    """

    session_id: str
    episodes: int
    versions: Mapping[str, tuple[int, int]]
    is_deterministic: bool
    assignment_id: int = 0


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode of an evaluation.

    Attributes:
        total: its return, with that of its group where there is one.
        length: steps.
    """

    total: float
    length: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How some numbers are spread: mean, standard deviation (of these numbers, not an estimate for others), extremes."""

    mean: float
    std: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns that of some values, at least one."""
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return cls(mean, math.sqrt(variance), min(values), max(values))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One behavior.

    Attributes:
        behavior: its name.
        step: trainer steps of the policy.
        version: of the policy.
        is_deterministic: whether the mode of the distribution acted.
        episodes: how many, all of them whole.
        returns: of the episodes, those of their groups included.
        lengths: in steps.
        is_complete: all episodes that were asked for were played.
    """

    behavior: str
    step: int
    version: int
    is_deterministic: bool
    episodes: int
    returns: Spread
    lengths: Spread
    is_complete: bool = True

    @classmethod
    def of(
        cls,
        behavior: str,
        played: Collection[Played],
        *,
        step: int,
        version: int,
        is_deterministic: bool,
        is_complete: bool = True,
    ) -> EvaluationResult:
        """Returns that of some episodes, at least one."""
        return cls(
            behavior=behavior,
            step=step,
            version=version,
            is_deterministic=is_deterministic,
            episodes=len(played),
            returns=Spread.of([episode.total for episode in played]),
            lengths=Spread.of([float(episode.length) for episode in played]),
            is_complete=is_complete,
        )

    def document(self) -> dict[str, Any]:
        """Returns it as JSON has it."""
        return asdict(self)


class EvaluationSink(Protocol):
    """Takes finished episodes of evaluations; called in the trainer thread."""

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Takes one."""


class NoEvaluation:
    """Takes nothing: nobody evaluates."""

    def add(self, behavior: str, team: int, assignment_id: int, played: Played) -> None:
        """Forgets it."""


def hand_on(behavior: str, chunk: Chunk, sink: EvaluationSink) -> None:
    """Hands the evaluated episodes of a chunk to a sink."""
    columns = chunk.columns
    purposes = columns.get("episode/purpose")
    if purposes is None:
        return
    rows = np.flatnonzero(purposes == Purpose.EVALUATE)
    if not len(rows):
        return
    returns = columns["episode/return"][rows].astype(np.float64)
    shared = columns.get("episode/group_return")
    if shared is not None:
        returns += shared[rows]
    assignments = columns.get("episode/assignment")
    numbers = [0] * len(rows) if assignments is None else assignments[rows].tolist()
    for number, total, length in zip(numbers, returns.tolist(), columns["episode/length"][rows].tolist(), strict=True):
        sink.add(behavior, chunk.team, number, Played(total, length))
