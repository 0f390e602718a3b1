"""The interface of a scripted player's task."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from rollcast.unity.communicator_objects import unity_message_pb2


class WrongReplyError(Exception):
    """A reply that a Unity player could not use, with the reason."""


class Task(Protocol):
    """A scene with agents."""

    @property
    def decisions(self) -> int:
        """Returns the number of decisions so far."""

    def reset(self, seed: int | None = None) -> None:
        """Starts all episodes again without ends, as Unity does at a RESET.

        Args:
            seed: Of the random numbers from here on; None leaves them as they are.
        """

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes the agents that ended, those that ask, and the behaviors that are new."""

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies the actions of a reply and continues to the next decision.

        Raises:
            WrongReplyError: The reply does not hold one action for each agent that asked.
        """


class EpisodeSink(Protocol):
    """Takes the results of finished episodes."""

    def __call__(self, behavior: str, decisions: int, total: float, length: int) -> None:
        """Receives an ended episode of a behavior with the number of decisions so far."""


def nobody(behavior: str, decisions: int, total: float, length: int) -> None:
    """Ignores episodes."""


class Scene:
    """Several tasks in one player.

    Args:
        tasks: In the order in which they write.
    """

    def __init__(self, tasks: Iterable[Task]) -> None:
        self._tasks: Sequence[Task] = tuple(tasks)

    @property
    def decisions(self) -> int:
        """Returns the decisions of all tasks."""
        return sum(task.decisions for task in self._tasks)

    def reset(self, seed: int | None = None) -> None:
        """Resets all tasks."""
        for number, task in enumerate(self._tasks):
            task.reset(None if seed is None else seed + 1000 * number)

    def write(self, output: unity_message_pb2.UnityOutputProto) -> None:
        """Writes all."""
        for task in self._tasks:
            task.write(output)

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies each task's actions."""
        for task in self._tasks:
            task.act(reply)
