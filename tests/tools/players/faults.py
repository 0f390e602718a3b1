"""Faults of players, each of which occurs once after a number of decisions."""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

from rollcast.unity.communicator_objects import agent_pb2, unity_message_pb2

from tests.tools.players.side_channel import AVERAGE, HISTOGRAM, MOST_RECENT, SUM, UNKNOWN, record, statistic
from tests.tools.players.task import Task

Output = unity_message_pb2.UnityOutputProto
EXIT_CODE: Final = 7
BALLAST_BYTES: Final = 50 * 1024 * 1024


def _exit(output: Output) -> NoReturn:
    os._exit(EXIT_CODE)


def _segmentation_fault(output: Output) -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


def _hang(output: Output) -> None:
    threading.Event().wait()


def _first(output: Output) -> agent_pb2.AgentInfoProto:
    return min(output.rl_output.agentInfos.items())[1].value[0]


def _nan_reward(output: Output) -> None:
    _first(output).reward = math.nan


def _infinite_group_reward(output: Output) -> None:
    _first(output).group_reward = math.inf


def _nan_observation(output: Output) -> None:
    _first(output).observations[0].float_data.data[0] = math.nan


def _short_observation(output: Output) -> None:
    del _first(output).observations[0].float_data.data[-1]


def _long_mask(output: Output) -> None:
    _first(output).action_mask.extend([True] * 100)


def _ballast(output: Output) -> None:
    output.rl_output.side_channel += record(UNKNOWN, bytes(BALLAST_BYTES))


def _bad_side_channel(output: Output) -> None:
    output.rl_output.side_channel += UNKNOWN.bytes_le + b"\xff\xff\xff\x7f" + b"too short"


FAULTS: Mapping[str, Callable[[Output], None]] = MappingProxyType(
    {
        "exit": _exit,
        "segmentation-fault": _segmentation_fault,
        "hang": _hang,
        "nan-reward": _nan_reward,
        "infinite-group-reward": _infinite_group_reward,
        "nan-observation": _nan_observation,
        "short-observation": _short_observation,
        "long-mask": _long_mask,
        "ballast": _ballast,
        "bad-side-channel": _bad_side_channel,
    }
)


class Changed:
    """A task whose messages are changed."""

    def __init__(self, task: Task) -> None:
        self._task = task

    @property
    def decisions(self) -> int:
        """Returns the decisions of the task."""
        return self._task.decisions

    def reset(self, seed: int | None = None) -> None:
        """Resets the task."""
        self._task.reset(seed)

    def act(self, reply: unity_message_pb2.UnityRLInputProto) -> None:
        """Applies actions to the task."""
        self._task.act(reply)


class Faulty(Changed):
    """A task with faults.

    Args:
        task: The task.
        faults: Some of `FAULTS`.
        at: Decisions after which the first happens; the others follow, one with each message.
    """

    def __init__(self, task: Task, faults: Iterable[str], at: int) -> None:
        super().__init__(task)
        self._faults = [FAULTS[fault] for fault in faults]
        self._at = at

    def write(self, output: Output) -> None:
        """Writes the task, and spoils it when it is time."""
        self._task.write(output)
        if self._faults and self.decisions >= self._at:
            self._faults.pop(0)(output)


class Reporting(Changed):
    """A task whose player sends statistics with every message."""

    def write(self, output: Output) -> None:
        """Writes the task, and a statistic of each kind."""
        self._task.write(output)
        statistics = [
            ("Scripted/Decisions", self.decisions, MOST_RECENT),
            ("Scripted/Two", 2.0, AVERAGE),
            ("Scripted/Messages", 1.0, SUM),
            ("Scripted/Spread", self.decisions % 7, HISTOGRAM),
        ]
        output.rl_output.side_channel += b"".join(statistic(*each) for each in statistics)
