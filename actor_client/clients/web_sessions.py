"""The clients that post their messages: each has a session, which its secret name stands for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Final

from rollcast.v1.client_pb2 import PlayRequest, PlayResponse

from actor_client.clients.web_rules import Refused

SESSION_FORM: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
"""Form of a session's name. A client draws it: who knows it plays for that client."""


class Sessions:
    """All sessions of clients that post.

    Args:
        begin: Returns the conversation of a new client.
        idle_seconds: Seconds without a message after which a client counts as gone.
    """

    def __init__(self, begin: Callable[[], WebConversation], idle_seconds: float) -> None:
        self._begin = begin
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, _Session] = {}

    async def play(self, name: str, request: PlayRequest) -> PlayResponse:
        """Returns the answer to a message of a session, which the first one begins.

        Raises:
            Refused: The session is busy, has begun already, or does not exist.
        """
        session = self._sessions.get(name)
        if session is None:
            if not request.HasField("hello"):
                raise Refused(404, "there is no such session (any more): draw a new name, and begin with hello")
            session = self._sessions[name] = _Session(self._begin())
        elif session.is_busy:
            raise Refused(409, "the session's last message is not answered yet: send one at a time")
        elif request.HasField("hello"):
            raise Refused(409, "there is such a session already: draw another name")
        session.work()
        try:
            response = await session.conversation.play(request)
        except BaseException:  # the client hung up
            self.leave(name)
            raise
        if response.goodbye:
            self.leave(name)
        elif self._sessions.get(name) is session:
            session.rest(self._idle_seconds, lambda: self.leave(name))
        return response

    def leave(self, name: str) -> None:
        """Ends a session, if there is one."""
        session = self._sessions.pop(name, None)
        if session is not None:
            session.work()
            session.conversation.close()

    def close(self) -> None:
        """Ends all sessions."""
        for name in list(self._sessions):
            self.leave(name)


class _Session:
    """One client that posts.

    Args:
        conversation: Answers it.
    """

    def __init__(self, conversation: WebConversation) -> None:
        self.conversation = conversation
        self._timer: asyncio.TimerHandle | None = None
        self.is_busy = False

    def work(self) -> None:
        """Notes that a message is being answered."""
        self.is_busy = True
        if self._timer is not None:
            self._timer.cancel()

    def rest(self, seconds: float, expire: Callable[[], None]) -> None:
        """Notes that the client has its answer, and has some seconds for the next message."""
        self.is_busy = False
        self._timer = asyncio.get_running_loop().call_later(seconds, expire)
