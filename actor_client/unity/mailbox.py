"""Messages of players that the gateway has not taken yet; a player's thread waits here for its answer."""

import enum
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from communicator_objects.unity_message_pb2 import UnityMessageProto


class BadPlayerData(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A player sent what cannot be used; the text is one line with the behavior or player, the value, the next step."""


class Kind(enum.Enum):
    """Kind of a post."""

    HELLO = enum.auto()
    """A player's first message."""
    READY = enum.auto()
    """Its second: it waits for the first reset."""
    STEP = enum.auto()
    """Agents ask for actions, or ended."""
    LEFT = enum.auto()
    """The player left, failed, or began again; no thread waits for an answer."""


class Post:
    """One message on its way to the gateway and back.

    Args:
        kind: What it is about.
        worker: Which player sent it.
        content: What was decoded, by kind.

    Attributes:
        kind: The same.
        worker: The same.
        content: The same.
    """

    __slots__ = ("_answered", "_reply", "_unanswered", "content", "kind", "worker")

    def __init__(self, kind: Kind, worker: int, content: Any = None) -> None:
        self.kind = kind
        self.worker = worker
        self.content = content
        self._reply = UnityMessageProto()
        # Bare locks: they are made for each exchange, and an Event costs four times as much.
        self._unanswered = threading.Lock()
        self._answered = threading.Lock()
        self._answered.acquire()

    @property
    def is_answered(self) -> bool:
        """True once it has an answer: then nothing more needs to be done for it."""
        return self._unanswered.locked()

    def answer(self, reply: UnityMessageProto) -> bool:
        """Gives the player's thread its answer, from any thread; False if it has one already."""
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
        """Returns once there is an answer. Called once, by the thread that made the post."""
        self._answered.acquire()


class Mailbox:
    """Posts of all players, in the order of their coming. Any thread puts, the gateway takes.

    Attributes:
        ring: Called after each post, in the thread that put it; the gateway sets it.
        serve: Called after a post whose thread is about to wait for the answer, and might as well see to it by itself;
            the gateway sets it.
    """

    def __init__(self) -> None:
        self._posts: deque[Post] = deque()
        self.ring: Callable[[], None] = _nothing
        self.serve: Callable[[], None] = _nothing

    def put(self, post: Post) -> None:
        """Puts a post that no thread waits for."""
        self._posts.append(post)
        self.ring()

    def put_and_wait(self, post: Post) -> None:
        """Puts a post, and returns when it is answered."""
        self._posts.append(post)
        self.serve()
        post.wait()

    @property
    def empty(self) -> bool:
        """True if nothing waits."""
        return not self._posts

    def take(self) -> list[Post]:
        """Returns all posts that wait."""
        taken: list[Post] = []
        posts = self._posts
        while posts:
            taken.append(posts.popleft())
        return taken


def _nothing() -> None:
    """Stands in until there is a gateway: posts wait for it."""
