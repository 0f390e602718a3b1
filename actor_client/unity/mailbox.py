"""Holds players' messages for the gateway; a player's thread waits here for its answer."""

import enum
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto


class BadPlayerData(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A player sent unusable data; the text is one line with the behavior or player, the value and the next step."""


class Kind(enum.Enum):
    """Kind of a post."""

    HELLO = enum.auto()
    """A player's first message."""
    READY = enum.auto()
    """A player's second message; the player waits for the first reset."""
    STEP = enum.auto()
    """Agents ask for actions, or their episodes ended."""
    LEFT = enum.auto()
    """The player left, failed, or restarted; no thread waits for an answer."""


class Post:
    """One message on its way to the gateway and back.

    Args:
        kind: The kind of message.
        worker: The number of the player that sent it.
        content: The decoded message, by kind.

    Attributes:
        kind: The kind of message.
        worker: The number of the player that sent it.
        content: The decoded message, by kind.
    """

    __slots__ = ("_answered", "_reply", "_unanswered", "content", "kind", "worker")

    def __init__(self, kind: Kind, worker: int, content: Any = None) -> None:
        self.kind = kind
        self.worker = worker
        self.content = content
        self._reply = UnityMessageProto()
        # Bare locks: one is made for each exchange, and an Event costs four times as much.
        self._unanswered = threading.Lock()
        self._answered = threading.Lock()
        self._answered.acquire()

    @property
    def is_answered(self) -> bool:
        """True if the post has an answer, and so needs no more work."""
        return self._unanswered.locked()

    def answer(self, reply: UnityMessageProto) -> bool:
        """Answers the player's thread; returns False if the post has an answer already. Any thread may call it."""
        if not self._unanswered.acquire(blocking=False):
            return False
        self._reply = reply
        self._answered.release()
        return True

    @property
    def reply(self) -> UnityMessageProto:
        """The answer, if there is one."""
        return self._reply

    def wait(self) -> None:
        """Waits for the answer. Called once, by the thread that made the post."""
        self._answered.acquire()


class Mailbox:
    """Posts of all players, in the order of arrival. Any thread puts, the gateway takes.

    Attributes:
        ring: Called after each post, in the thread that put it; the gateway sets it.
        serve: Called after a post whose thread would wait for the answer, and can do the work itself; the gateway sets
            it.
    """

    def __init__(self) -> None:
        self._posts: deque[Post] = deque()
        self.ring: Callable[[], None] = _nothing
        self.serve: Callable[[], None] = _nothing

    def put(self, post: Post) -> None:
        """Puts a post for which no thread waits."""
        self._posts.append(post)
        self.ring()

    def put_and_wait(self, post: Post) -> None:
        """Puts a post, and waits until it is answered."""
        self._posts.append(post)
        self.serve()
        post.wait()

    @property
    def empty(self) -> bool:
        """True if no post waits."""
        return not self._posts

    def take(self) -> list[Post]:
        """Returns all waiting posts."""
        taken: list[Post] = []
        posts = self._posts
        while posts:
            taken.append(posts.popleft())
        return taken


def _nothing() -> None:
    """Does nothing; used until a gateway exists, while posts wait."""
