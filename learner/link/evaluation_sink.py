"""Where trainers hand on episodes that are no training."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from rollcast.enums import Purpose
from rollcast.trajectories import Chunk

from learner.link.evaluation import Played


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
    lengths = columns["episode/length"][rows].tolist()
    for number, total, length in zip(numbers, returns.tolist(), lengths, strict=True):
        sink.add(behavior, chunk.team, number, Played(total, length))
