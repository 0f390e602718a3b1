"""Commands of a run to the service: what actors are asked to do, and when they wait."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from rollcast.enums import HoldReason
from rollcast.v1 import policy_pb2

from learner.link.evaluation import Order


@dataclass(frozen=True, slots=True)
class SetHold:
    """Begins or ends a hold of all actors.

    Attributes:
        reason: why they wait.
        active: True begins the hold, False ends it.
    """

    reason: HoldReason
    active: bool


@dataclass(frozen=True, slots=True)
class Assign:
    """Replaces what actors are asked to do.

    Attributes:
        assignment: what is asked for; the service gives it its id.
        players: sessions that play the round of lock-step which it begins; None for all.
    """

    assignment: policy_pb2.Assignment
    players: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class StartEvaluation:
    """Asks one actor to play an evaluation; an actor that has left plays nothing."""

    order: Order


@dataclass(frozen=True, slots=True)
class EndEvaluation:
    """Ends the evaluation of one actor, which returns to the assignment of all."""

    session_id: str


Command = SetHold | Assign | StartEvaluation | EndEvaluation
Send = Callable[[Command], object]


class CommandChannel:
    """Carries commands to the service in the order they are sent. Thread-safe.

    Commands sent before `connect` wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[Command] = deque()
        self._deliver: Send | None = None

    def send(self, command: Command) -> None:
        """Hands a command to the service."""
        with self._lock:
            if self._deliver is None:
                self._waiting.append(command)
            else:
                self._deliver(command)

    def connect(self, deliver: Send) -> None:
        """Names the receiver and hands it all that waits.

        Args:
            deliver: Called with each command, in the thread that sends it; must not block.
        """
        with self._lock:
            while self._waiting:
                deliver(self._waiting.popleft())
            self._deliver = deliver
