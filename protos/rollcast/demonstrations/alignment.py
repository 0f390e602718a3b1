"""Which reward, end and action belong to which step of a recording.

A record is what an agent reports when it asks for a decision, or when its episode ends: what it sees, and the reward
*since its last decision*. So the reward and the end of step t stand in the record after it, and the reward of an
episode's first record belongs to no step.

The action is in one of two places. ML-Agents' reader takes the one in the record of the observation, and this project
writes it there. But Unity's recorder writes each record *before* the decision is made, so what it stores there is the
action of the decision before: zeros in the first record of an episode, and in the record that ends it the last action.
ML-Agents trains on pairs that are one decision apart; here such files are recognized by just that, and read right.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """What R records of one file say beside the observations.

    Attributes:
        agents: who reports, int64 [R].
        done: the record ends an episode, bool [R].
        acted: the record has an action, bool [R].
        still: the action is all zeros, bool [R].
    """

    agents: NDArray[np.int64]
    done: NDArray[np.bool_]
    acted: NDArray[np.bool_]
    still: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """The N steps of R records; a record that nothing follows is no step.

    Attributes:
        rows: the record of each step's observation, int64 [N].
        next_rows: the record with its reward, its end and its next observation, int64 [N].
        action_rows: the record with its action, int64 [N].
        unfinished: decisions at the end of the file whose outcome was not recorded.
        delayed: the file holds each action in the next record, as Unity's recorder does.
    """

    rows: Rows
    next_rows: Rows
    action_rows: Rows
    unfinished: int
    delayed: bool


def align(records: Records) -> Steps:
    """Finds the steps."""
    waiting: dict[int, int] = {}
    rows: list[int] = []
    next_rows: list[int] = []
    firsts: list[int] = []
    ends: list[int] = []
    for row, (agent, done) in enumerate(zip(records.agents.tolist(), records.done.tolist(), strict=True)):
        before = waiting.pop(agent, None)
        if before is not None:
            rows.append(before)
            next_rows.append(row)
            if done:
                ends.append(row)
        elif not done:
            firsts.append(row)
        if not done:
            waiting[agent] = row
    observed, following = np.array(rows, np.int64), np.array(next_rows, np.int64)
    delayed = _are_delayed(records, np.array(firsts, np.int64), np.array(ends, np.int64))
    return Steps(observed, following, following if delayed else observed, len(waiting), delayed)


def _are_delayed(records: Records, firsts: Rows, ends: Rows) -> bool:
    """Says whether each action is in the record after its decision.

    Args:
        records: all.
        firsts: those that begin an episode.
        ends: those that end one.
    """
    if not len(ends) or not records.acted[ends].all():
        return False
    return bool(records.still[firsts].all() and not records.still.all())
