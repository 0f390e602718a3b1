"""What a task of a scripted player is: agents that ask, act and end, as a Unity scene has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from communicator_objects import unity_message_pb2


class WrongReplyError(Exception):
    """A reply that a player of Unity could not use, with what is wrong with it."""


class Task(Protocol):
    """A scene with agents."""

    @property
    def decisions(self) -> int:
        """Agents' decisions taken so far."""

    def reset(self, seed: int | None = None) -> None:
        """Begins all episodes anew, as Unity does at a RESET: no agent says that its episode ended.

        Args:
            seed: of the random numbers from here on; None leaves them as they are.
        """

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, those that ask, and the behaviors that are new."""

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies the actions of a reply and goes on to the next decision.

        Raises:
            WrongReplyError: the reply does not hold one action for each agent that asked.
        """


class EpisodeSink(Protocol):
    """Takes the results of finished episodes."""

    def __call__(self, behavior: str, decisions: int, total: float, length: int) -> None:
        """An episode of a behavior ended, when its task had taken so many decisions."""


def nobody(behavior: str, decisions: int, total: float, length: int) -> None:
    """An `EpisodeSink` that forgets."""


class Scene:
    """Several tasks in one player.

    Args:
        tasks: in the order in which they write.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks: Sequence[Task] = tuple(tasks)

    @property
    def decisions(self) -> int:
        """Decisions of all tasks."""
        return sum(task.decisions for task in self._tasks)

    def reset(self, seed: int | None = None) -> None:
        """Resets all."""
        for number, task in enumerate(self._tasks):
            task.reset(None if seed is None else seed + 1000 * number)

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes all."""
        for task in self._tasks:
            task.write(output)

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Gives each its actions."""
        for task in self._tasks:
            task.act(reply)
