"""Assigns the rewards, ends and actions of a recording to its steps.

An agent reports a record when it asks for a decision, and when its episode ends: its observations, and the reward
*since its last decision*. The reward and the end of step t are therefore in the record after it, and the reward of an
episode's first record belongs to no step.

The action is in one of two places. ML-Agents' reader expects it in the record of the observation, and this project
writes it there. But Unity's recorder writes each record *before* the decision is made, so it stores the action of the
previous decision: zeros in the first record of an episode, and the last action in the record that ends it. ML-Agents
trains on such shifted pairs; this project recognizes these files and reads them correctly.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Records:
    """The contents of R records of one file, without the observations.

    Attributes:
        agents: The reporting agents, int64 [R].
        done: The record ends an episode, bool [R].
        acted: The record has an action, bool [R].
        still: The action is all zeros, bool [R].
    """

    agents: NDArray[np.int64]
    done: NDArray[np.bool_]
    acted: NDArray[np.bool_]
    still: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Steps:
    """The N steps of R records; a record without a successor is no step.

    Attributes:
        rows: The record of each step's observation, int64 [N].
        next_rows: The record with its reward, its end and its next observation, int64 [N].
        action_rows: The record with its action, int64 [N].
        unfinished: Decisions at the end of the file without a recorded outcome.
        delayed: The file holds each action in the next record, as Unity's recorder writes it.
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
    """Returns whether each action is in the record after its decision.

    Args:
        records: All records.
        firsts: Records that begin an episode.
        ends: Records that end an episode.
    """
    if not len(ends) or not records.acted[ends].all():
        return False
    return bool(records.still[firsts].all() and not records.still.all())
