"""Matches of self-play, evaluations and tournaments, and the games that actors report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Final

import numpy as np
from rollcast.chunks import Chunk, GameResult
from rollcast.enums import AssignmentRole, GroupEnd, Purpose, SegmentEnd

from learner.shared.policies import PolicyKey

_NUMBERS_OF_A_START: Final = 2**32
"""Match numbers of one start of the learner, so that no two starts use the same."""


def match_numbers(generation: int, *, evaluates: bool = False) -> Iterator[int]:
    """Returns the numbers of the matches of one start of the learner: those of training, or those of evaluations."""
    first = generation * _NUMBERS_OF_A_START + 1
    return count(first + _NUMBERS_OF_A_START // 2 if evaluates else first)


@dataclass(frozen=True, slots=True)
class Seat:
    """The part of one behavior id in a match.

    Attributes:
        behavior: Name of the behavior.
        team: Team of the behavior id.
        role: LEARN, OPPONENT or IDLE.
        policy: The policy of an opponent; None for the newest. Other roles have None.
        is_deterministic: Whether an opponent takes the mode of its policy's distribution.
    """

    behavior: str
    team: int
    role: AssignmentRole
    policy: PolicyKey | None = None
    is_deterministic: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """What one actor plays until its next match.

    Its agents change to it when their next episodes begin. Where a behavior id learns that was an opponent before, or
    the other way round, the actor resets all environments first. A match of an evaluation lasts until `EndEvaluation`.

    Attributes:
        number: Number of the match, from 1; never used twice in a run. Records of its games carry it.
        session_id: Session of the actor.
        seats: One seat for each behavior id; other behavior ids with self-play wait. Empty in an evaluation without
            opponents, in which each behavior id plays by itself.
        episodes: Episodes of each behavior id that count, in an evaluation or a match of opponents alone, which begins
            with a reset of all environments; 0 for all, without a reset.
        random_steps: Actions that an opponent draws uniformly at the start of each episode.
        versions: Generation and version of each behavior's policy under evaluation; others act with their newest. Empty
            outside of evaluations.
        is_deterministic: Whether the mode of the distribution acts in an evaluation without opponents.
    """

    number: int
    session_id: str
    seats: tuple[Seat, ...] = ()
    episodes: int = 0
    random_steps: int = 0
    versions: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    is_deterministic: bool = False

    @property
    def is_evaluation(self) -> bool:
        """True if the match is part of an evaluation."""
        return bool(self.versions)


@dataclass(frozen=True, slots=True)
class Game:
    """One finished episode of one agent in a match. Each agent of a game reports one.

    Attributes:
        match: Number of the match, which the actor was given; 0 for an evaluation that the learner did not order.
        behavior: Name of the agent's behavior.
        team: Team of the agent; its seat.
        role: LEARN or OPPONENT.
        result: Result for the agent.
        end: TERMINATED or TRUNCATED.
        group_end: Whether and how the episode of its group ended with it.
        total: Return of the episode, plus its group's return if there is a group.
        length: Length in steps.
        group: Number of its group in its actor; 0 for none.
        group_episode: Number of the group's episode in the session; 0 for none.
    """

    match: int
    behavior: str
    team: int
    role: AssignmentRole
    result: GameResult
    end: SegmentEnd
    group_end: GroupEnd
    total: float
    length: int
    group: int = 0
    group_episode: int = 0

    @property
    def has_mates_left(self) -> bool:
        """Returns whether the episode of its group continues without it."""
        return bool(self.group) and self.group_end is GroupEnd.CONTINUES

    @property
    def is_over(self) -> bool:
        """Returns whether the game ended for the agent and its group, and was not ended from outside."""
        is_group_over = not self.group or self.group_end is GroupEnd.TERMINATED
        return self.end is SegmentEnd.TERMINATED and is_group_over


def games_of(behavior: str, chunk: Chunk) -> list[Game]:
    """Returns the episodes of matches and evaluations in a chunk, in its order; demonstrations are none."""
    columns = chunk.columns
    matches, purposes = columns.get("episode/match"), columns.get("episode/purpose")
    if matches is None and purposes is None:
        return []
    none = np.zeros(chunk.episodes, np.uint64)
    matches = none if matches is None else matches
    chosen = matches > 0
    if purposes is not None:
        is_evaluated = purposes == Purpose.EVALUATE
        chosen = is_evaluated | (chosen & (purposes == Purpose.TRAIN))
        assignments = columns.get("episode/assignment", none)
        matches = np.where(is_evaluated, assignments.astype(np.uint64), matches.astype(np.uint64))
    rows = np.flatnonzero(chosen)
    if not len(rows):
        return []

    def told(name: str, absent: int) -> list[int]:
        column = columns.get(f"episode/{name}")
        return [absent] * len(rows) if column is None else column[rows].tolist()

    totals = columns["episode/return"][rows].astype(np.float64)
    shared = columns.get("episode/group_return")
    if shared is not None:
        totals += shared[rows]
    return [
        Game(
            match,
            behavior,
            chunk.team,
            AssignmentRole(role),
            GameResult(result),
            SegmentEnd(end),
            GroupEnd(group_end),
            *others,
        )
        for match, role, result, end, group_end, *others in zip(
            matches[rows].tolist(),
            told("role", AssignmentRole.LEARN),
            told("result", GameResult.UNKNOWN),
            told("end", SegmentEnd.TERMINATED),
            told("group_end", GroupEnd.CONTINUES),
            totals.tolist(),
            *(told(name, 0) for name in ("length", "group", "group_episode")),
            strict=True,
        )
    ]
