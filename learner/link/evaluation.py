"""Orders and results of evaluations."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import numpy as np
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk


@dataclass(frozen=True, slots=True)
class Order:
    """One session's share of an evaluation: a number of whole episodes of each of its behavior ids.

    Attributes:
        number: Number of the order; grows with each order of a run, from 1. Records of its episodes carry it.
        session_id: The session.
        episodes: Episodes of each behavior id.
        versions: Generation and version of each behavior's policy under evaluation; others act with their newest.
        is_deterministic: Whether the mode of the distribution acts.
    """

    number: int
    session_id: str
    episodes: int
    versions: Mapping[str, tuple[int, int]]
    is_deterministic: bool


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode of an evaluation.

    Attributes:
        total: Return of the episode, plus its group's return if there is a group.
        length: Length in steps.
    """

    total: float
    length: int


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, standard deviation (of the values themselves, not an estimate), minimum and maximum of some values."""

    mean: float
    std: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return cls(mean, math.sqrt(variance), min(values), max(values))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of one behavior's evaluation.

    Attributes:
        behavior: Name of the behavior.
        step: Trainer steps of the policy.
        version: Version of the policy.
        is_deterministic: Whether the mode of the distribution acted.
        episodes: Number of whole episodes.
        returns: Returns of the episodes, including those of their groups.
        lengths: Lengths of the episodes in steps.
        is_complete: Whether all requested episodes were played.
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
        """Returns the result of at least one episode."""
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
        """Returns the result as a JSON object."""
        return asdict(self)


class EvaluationSink(Protocol):
    """Receives finished episodes of evaluations; called in the trainers' thread."""

    def add(self, behavior: str, team: int, order: int, played: Played) -> None:
        """Adds a finished episode.

        Args:
            behavior: Name of the behavior.
            team: Team of the agent.
            order: Number of the order; 0 for none.
            played: The episode.
        """


class NoEvaluation:
    """A sink that ignores episodes, for runs without evaluation."""

    def add(self, behavior: str, team: int, order: int, played: Played) -> None:
        """Ignores the episode."""


def hand_on(behavior: str, chunk: Chunk, sink: EvaluationSink) -> None:
    """Passes the evaluated episodes of a chunk to a sink."""
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
