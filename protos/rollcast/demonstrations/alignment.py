"""Assigns the rewards and ends of a recording to its steps.

An agent reports a record when it asks for a decision, and when its episode ends: its observations, and the reward
*since its last decision*. The reward and the end of step t are therefore in the record after it, and the reward of an
episode's first record belongs to no step. Where its action is, `rollcast.demonstrations.pairing` finds out.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Steps:
    """The N steps of R records; a record without a successor is no step.

    Attributes:
        rows: The record of each step's observation, int64 [N].
        next_rows: The record with its reward, its end and its next observation, int64 [N].
        firsts: Records before which their agent had no open episode, int64.
        ends_before: The record that ended the agent's episode before each of ``firsts``; -1 if there is none.
        lasts: Decisions at the end of the file without a recorded outcome, int64.
    """

    rows: Rows
    next_rows: Rows
    firsts: Rows
    ends_before: Rows
    lasts: Rows


def align(agents: Rows, done: NDArray[np.bool_]) -> Steps:
    """Finds the steps.

    Args:
        agents: The reporting agent of each record, int64 [R].
        done: The record ends an episode, bool [R].
    """
    waiting: dict[int, int] = {}
    ended: dict[int, int] = {}
    rows: list[int] = []
    next_rows: list[int] = []
    firsts: list[int] = []
    ends_before: list[int] = []
    for row, (agent, ends) in enumerate(zip(agents.tolist(), done.tolist(), strict=True)):
        before = waiting.pop(agent, None)
        if before is not None:
            rows.append(before)
            next_rows.append(row)
        elif not ends:
            firsts.append(row)
            ends_before.append(ended.get(agent, -1))
        if ends:
            ended[agent] = row
        else:
            waiting[agent] = row
    found = (rows, next_rows, firsts, ends_before, list(waiting.values()))
    return Steps(*(np.array(part, np.int64) for part in found))
