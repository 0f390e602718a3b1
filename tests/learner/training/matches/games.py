"""Records of games as actors report them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, GroupEnd, Purpose, SegmentEnd
from rollcast.trajectories import Chunk

from learner.link.matches import Game, Match, Seat
from learner.link.to_trainers import Experience

RETURNS = {GameResult.WON: 1.0, GameResult.LOST: -1.0}


def reported(
    match: Match,
    seat: Seat,
    results: Sequence[GameResult],
    /,
    *,
    ghost_steps: int = 0,
    record: GameRecord | None = None,
    **columns: Any,
) -> Experience:
    """Returns the report of games of ten steps by one seat of a match; ``columns`` replace those of episodes."""
    rows = len(results)
    values: dict[str, Any] = {
        "match": [match.number] * rows,
        "result": list(results),
        "role": [int(seat.role)] * rows,
        "end": [SegmentEnd.TERMINATED] * rows,
        "return": [RETURNS.get(result, 0.0) for result in results],
        "length": [10] * rows,
        **columns,
    }
    episodes = {f"episode/{name}": np.asarray(value) for name, value in values.items()}
    chunk = Chunk(team=seat.team, episodes=rows, ghost_steps=ghost_steps, columns=episodes, game_record=record)
    return Experience(0, 1, chunk, match.session_id, 0, 0, 0.0)


def evaluated(
    match: Match, *returns: float, behavior_id: tuple[str, int], length: int = 3, session_id: str | None = None
) -> Experience:
    """Returns the report of episodes of an evaluation without opponents."""
    values: dict[str, Any] = {
        "episode/purpose": np.full(len(returns), Purpose.EVALUATE, np.uint8),
        "episode/assignment": np.full(len(returns), match.number, np.uint64),
        "episode/return": np.asarray(returns, np.float64),
        "episode/length": np.full(len(returns), length, np.uint32),
    }
    chunk = Chunk(team=behavior_id[1], episodes=len(returns), columns=values)
    return Experience(0, 1, chunk, match.session_id if session_id is None else session_id, 0, 0, 0.0)


def episode(total: float, length: int) -> Game:
    """Returns an episode of an evaluation."""
    end, group_end = SegmentEnd.TERMINATED, GroupEnd.CONTINUES
    return Game(0, "Ball", 0, AssignmentRole.LEARN, GameResult.UNKNOWN, end, group_end, total, length)
