"""The link between the service and the trainers: immutable messages, first in, first out, in both directions."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from learner.link.to_front import ToFront
from learner.link.to_trainers import Actors, ToTrainers

Message = TypeVar("Message")
Diverted = TypeVar("Diverted")
Transport = Callable[[Any], Any]


def as_it_is(message: Any) -> Any:
    """Returns the message itself: both sides are threads of one process, and messages are never changed."""
    return message


class Channel(Generic[Message]):
    """Carries messages from one side to the other in the order of `send`. Thread-safe; nothing blocks.

    Messages sent before `connect` wait for it.

    Args:
        transport: Function that each message passes through.
        newest: Message types of which only the newest counts: such a message replaces a message of its type that
            directly precedes it, so that they do not accumulate while the receiver is busy.
    """

    def __init__(self, transport: Transport = as_it_is, newest: frozenset[type] = frozenset()) -> None:
        self._transport = transport
        self._newest = newest
        self._lock = threading.Lock()
        self._waiting: deque[Message] = deque()
        self._wake: Callable[[], object] | None = None
        self._is_woken = False
        self._diverted: dict[type, Callable[[Any], object]] = {}

    def divert(self, kind: type[Diverted], take: Callable[[Diverted], object]) -> None:
        """Sends messages of one type to another receiver, at once and ahead of waiting messages.

        Used for messages that must not wait until the receiver next looks, perhaps after a long update. Call it before
        any such message is sent.

        Args:
            kind: Type of the messages.
            take: Called with each message in the sender's thread; must not block.
        """
        self._diverted[kind] = take

    def send(self, message: Message) -> None:
        """Appends a message, and wakes the receiver unless it is already awake."""
        carried = self._transport(message)
        kind = type(carried)
        take = self._diverted.get(kind)
        if take is not None:
            take(carried)
            return
        with self._lock:
            if kind in self._newest and self._waiting and type(self._waiting[-1]) is kind:
                self._waiting.pop()
            self._waiting.append(carried)
            wake = None if self._is_woken else self._wake
            self._is_woken = self._wake is not None
        if wake is not None:
            wake()

    def connect(self, wake: Callable[[], object]) -> None:
        """Sets the function that wakes the receiver, and calls it if messages wait.

        Args:
            wake: Called in the sender's thread, at most once before the next `receive`; must not block.
        """
        with self._lock:
            self._wake = wake
            self._is_woken = bool(self._waiting)
        if self._is_woken:
            wake()

    def receive(self) -> list[Message]:
        """Takes all messages that wait, oldest first."""
        with self._lock:
            taken = list(self._waiting)
            self._waiting.clear()
            self._is_woken = False
        return taken


class Link:
    """Connects the service and the trainers by two channels.

    Args:
        transport: Function that each message passes through.

    Attributes:
        to_trainers: Messages of the service.
        to_front: Messages of the trainers.
    """

    def __init__(self, transport: Transport = as_it_is) -> None:
        self.to_trainers: Channel[ToTrainers] = Channel(transport, newest=frozenset({Actors}))
        self.to_front: Channel[ToFront] = Channel(transport)
