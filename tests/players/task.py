"""What a task of a scripted player is, and what most of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from communicator_objects import agent_pb2, behavior_pb2, unity_message_pb2
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Task(Protocol):
    """A scene with agents.

    Attributes:
        decisions: agents' decisions taken so far.
    """

    decisions: int

    def reset(self, seed: int | None = None) -> None:
        """Begins all episodes anew, as Unity does at a RESET: no agent says that its episode ended."""

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, those that ask, and the behaviors that are new."""

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies the actions of a reply and goes on to the next decision.

        Raises:
            WrongReplyError: the reply does not hold one action for each agent that asked.
        """


class WrongReplyError(Exception):
    """A reply that a player of Unity could not use, with what is wrong with it."""


class EpisodeSink(Protocol):
    """Takes the results of finished episodes."""

    def __call__(self, behavior: str, decisions: int, total: float, length: int) -> None:
        """An episode of a behavior ended, when the player had taken so many decisions."""


def nobody(behavior: str, decisions: int, total: float, length: int) -> None:
    """An `EpisodeSink` that forgets."""


def brain(behavior_id: str, *, continuous: int = 0, branches: Sequence[int] = ()) -> behavior_pb2.BrainParametersProto:
    """Returns the message that tells a new behavior."""
    action_spec = behavior_pb2.ActionSpecProto(
        num_continuous_actions=continuous, num_discrete_actions=len(branches), discrete_branch_sizes=branches
    )
    return behavior_pb2.BrainParametersProto(brain_name=behavior_id, is_training=True, action_spec=action_spec)


def continuous_actions(reply: unity_message_pb2.UnityRLInputProto, behavior_id: str, count: int, size: int) -> Floats:
    """Returns the continuous actions of a behavior, [count, size].

    Raises:
        WrongReplyError: it holds others than asked for.
    """
    rows = _rows(reply, behavior_id, count)
    if any(len(row.continuous_actions) != size for row in rows):
        raise WrongReplyError(f"{behavior_id}: an action has not {size} continuous values")
    found = np.array([list(row.continuous_actions) for row in rows], np.float64).reshape(count, size)
    if not np.all(np.abs(found) <= 1.0):
        raise WrongReplyError(f"{behavior_id}: a continuous action is not in [-1, 1]: {found.tolist()}")
    return found


def discrete_actions(
    reply: unity_message_pb2.UnityRLInputProto, behavior_id: str, count: int, branches: Sequence[int]
) -> NDArray[np.int64]:
    """Returns the choices of a behavior, [count, branches].

    Raises:
        WrongReplyError: it holds others than asked for.
    """
    rows = _rows(reply, behavior_id, count)
    if any(len(row.discrete_actions) != len(branches) for row in rows):
        raise WrongReplyError(f"{behavior_id}: an action has not {len(branches)} choices")
    found = np.array([list(row.discrete_actions) for row in rows], np.int64).reshape(count, len(branches))
    if not np.all((found >= 0) & (found < np.asarray(branches))):
        raise WrongReplyError(f"{behavior_id}: a choice is outside of its branch: {found.tolist()}")
    return found


def _rows(
    reply: unity_message_pb2.UnityRLInputProto, behavior_id: str, count: int
) -> Sequence[agent_pb2.AgentActionProto]:
    rows = reply.agent_actions[behavior_id].value if behavior_id in reply.agent_actions else ()
    if len(rows) != count:
        raise WrongReplyError(f"{behavior_id}: {count} agents asked, and {len(rows)} actions came")
    return rows
