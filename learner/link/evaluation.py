"""Orders of evaluations, and the episodes that actors report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.link.matches import Match


@dataclass(frozen=True, slots=True)
class Order:
    """One session's share of an evaluation: a number of whole episodes of each of its behavior ids.

    Attributes:
        number: Number of the order; grows with each order of a run, from 1. Records of its episodes carry it.
        session_id: The session.
        episodes: Episodes of each behavior id.
        versions: Generation and version of each behavior's policy under evaluation; others act with their newest.
        is_deterministic: Whether the mode of the distribution acts.
        match: The match that the session plays in place of these episodes, against an opponent; None without opponents.
    """

    number: int
    session_id: str
    episodes: int
    versions: Mapping[str, tuple[int, int]]
    is_deterministic: bool
    match: Match | None = None


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode of an evaluation.

    Attributes:
        total: Return of the episode, plus its group's return if there is a group.
        length: Length in steps.
    """

    total: float
    length: int


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
