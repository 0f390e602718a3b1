"""Reads the actions of a reply as strictly as a player of Unity would, and more so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.simulation import Floats, Whole
from tests.tools.players.task import WrongReplyError


def read_actions(
    reply: unity_message_pb2.UnityRLInputProto,
    behavior_id: str,
    masks: Sequence[Sequence[bool]],
    continuous: int,
    branches: Sequence[int],
) -> tuple[Floats, Whole]:
    """Returns the actions of a behavior, [k, continuous] and [k, branches].

    Args:
        reply: Of the trainer's side.
        behavior_id: Of the agents that asked.
        masks: What each of the k agents may not choose; empty forbids nothing.
        continuous: Axes.
        branches: Choices of each branch.

    Raises:
        WrongReplyError: It holds others than asked for.
    """
    if behavior_id not in reply.agent_actions:
        if masks:
            raise WrongReplyError(f"{behavior_id}: {len(masks)} agents asked, and nothing came")
        return np.zeros((0, continuous)), np.zeros((0, len(branches)), np.int64)
    rows = reply.agent_actions[behavior_id].value
    if len(rows) != len(masks) or not masks:
        raise WrongReplyError(f"{behavior_id}: {len(masks)} agents asked, and {len(rows)} actions came")
    for row, forbidden in zip(rows, masks, strict=True):
        _check(behavior_id, row, forbidden, continuous, branches)
    axes = np.array([row.continuous_actions for row in rows], np.float64).reshape(len(rows), continuous)
    return axes, np.array([row.discrete_actions for row in rows], np.int64).reshape(len(rows), len(branches))


def _check(
    behavior_id: str,
    row: agent_pb2.AgentActionProto,
    forbidden: Sequence[bool],
    continuous: int,
    branches: Sequence[int],
) -> None:
    axes, choices = row.continuous_actions, row.discrete_actions
    if len(axes) != continuous or len(choices) != len(branches):
        raise WrongReplyError(f"{behavior_id}: an action has {len(axes)} axes and {len(choices)} choices")
    if not all(-1.0 <= value <= 1.0 for value in axes):
        raise WrongReplyError(f"{behavior_id}: an axis is outside of [-1, 1]: {list(axes)}")
    if list(row.vector_actions_deprecated) != [*axes, *choices]:
        raise WrongReplyError(f"{behavior_id}: the deprecated field holds {list(row.vector_actions_deprecated)}")
    offset = 0
    for choice, size in zip(choices, branches, strict=True):
        if not 0 <= choice < size or (forbidden and forbidden[offset + choice]):
            raise WrongReplyError(f"{behavior_id}: {choice} of {size} choices is none, or forbidden")
        offset += size
