"""Limits the episodes of an actor that count to the rows that it has sent.

Records of training episodes decide on lessons, the best policy and the end of a run, and cost their sender nothing. An
episode has at least one row, and rows need credit. So a session's records count only up to the number of its received
rows. The lengths in the records are no better measure: they are claims as well, and an episode that began before a
restart, or lost rows to a reset, is honestly longer than what was received of it.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import Chunk
from rollcast.enums import AssignmentRole, ColumnRole, Purpose

from learner.service.ingest.session import Account

WITHOUT_ROWS: Final = "without_rows"
"""Reason for records of more episodes than the rows of their session can have."""
MAX_HELD_EPISODES: Final = 64
"""Most episodes of agents in groups that count before their rows arrive: actors hold these rows back for the mates."""


def leave_out_excess(account: Account, chunk: Chunk, *, is_grouped: bool) -> int:
    """Counts the rows and the training episodes of a chunk, and removes the records that are too many.

    Other records do not count here: evaluations count only under an order of the learner, those of opponents only in a
    match that the learner assigned, and demonstrations nowhere.

    Args:
        account: Account of the sender.
        chunk: The chunk, whose rows are accepted.
        is_grouped: Whether the behavior's agents are in groups.

    Returns:
        The number of removed records.
    """
    account.episode_rows += chunk.rows
    if not chunk.episodes:
        return 0
    counts = np.flatnonzero(_is_training(chunk))
    # Some more than the rows: records may precede rows of the same flush, and the last row of an agent may be void.
    early = min(account.agents, max(account.episode_rows, MAX_HELD_EPISODES if is_grouped else 0))
    room = max(0, account.episode_rows + early - account.episodes)
    excess = counts[room:]
    account.episodes += len(counts) - len(excess)
    if len(excess):
        _remove(chunk, excess)
    return len(excess)


def _is_training(chunk: Chunk) -> NDArray[np.bool_]:
    """Returns for each record whether it counts as a training episode, ``[E]``."""
    purposes, roles = (chunk.columns.get(f"episode/{name}") for name in ("purpose", "role"))
    found: NDArray[np.bool_] = np.ones(chunk.episodes, np.bool_)
    if purposes is not None:
        found &= (purposes == Purpose.TRAIN) | (purposes == Purpose.UNSPECIFIED)
    if roles is not None:
        found &= roles != AssignmentRole.OPPONENT
    return found


def _remove(chunk: Chunk, records: NDArray[Any]) -> None:
    """Removes records ``[R]`` from a chunk."""
    names = [name for name, role in chunk.roles.items() if role is ColumnRole.EPISODE]
    for name in names:
        chunk.columns[name] = np.delete(chunk.columns[name], records, axis=0)
    chunk.episodes -= len(records)
    if not chunk.episodes:
        for name in names:
            del chunk.columns[name], chunk.roles[name]
