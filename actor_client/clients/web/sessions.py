"""The clients that post their messages: each has a session, for which its secret name stands."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Callable
from typing import Final

from rollcast.v1.client_pb2 import PlayRequest, PlayResponse

from actor_client.clients.conversation import Conversation
from actor_client.clients.web.rules import Refused

SESSION_FORM: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
"""Form of a session's name. A client draws it: who knows it plays for that client."""
HUNG_UP: Final = "its connection ended"
ENDED: Final = "the gateway ended"
"""Why clients left, in words."""


def silent_for(seconds: float) -> str:
    """Returns why a client left that says nothing, in words."""
    return f"it sent nothing for {seconds:g} s"


class Sessions:
    """All sessions of clients that post; the gateway bounds their number.

    Args:
        idle_seconds: Seconds without a message after which a client counts as gone.
    """

    def __init__(self, idle_seconds: float) -> None:
        self._idle_seconds = idle_seconds
        self._sessions: dict[str, _Session] = {}
        self._all_gone: asyncio.Event | None = None

    async def play(self, name: str, request: PlayRequest, accept: Callable[[], Conversation]) -> PlayResponse:
        """Returns the answer to a message of a session, which the first one begins.

        Args:
            name: The session's name.
            request: The message.
            accept: Returns the conversation of a new client.

        Raises:
            Refused: The session is busy, has begun already, or does not exist.
        """
        session = self._free(name)
        if session is None:
            if not request.HasField("hello"):
                raise Refused(404, "there is no such session (any more): draw a new name, and begin with hello")
            session = self._sessions[name] = _Session(accept())
        elif request.HasField("hello"):
            raise Refused(409, "there is such a session already: draw another name")
        session.work()
        try:
            response = await session.conversation.exchange(request)
        except BaseException:
            self._end(name, session, HUNG_UP)
            raise
        if response.goodbye:
            self._end(name, session, "")
        else:
            session.rest(self._idle_seconds, self._expire, name)
        return response

    def refuse(self, name: str, fault: str) -> PlayResponse:
        """Ends a session because of an unusable message, and returns the goodbye.

        Args:
            name: The session's name; there may be none.
            fault: The fault, in one line.

        Raises:
            Refused: The session is busy.
        """
        session = self._free(name)
        if session is None:
            return PlayResponse(goodbye=fault)
        goodbye = session.conversation.refuse(fault)
        self.leave(name, fault)
        return goodbye

    def leave(self, name: str, why: str) -> None:
        """Ends a session, if there is one.

        Args:
            name: Its name.
            why: How the client left, in words, for the log.
        """
        session = self._sessions.get(name)
        if session is not None:
            self._end(name, session, why)

    async def close(self, seconds: float) -> None:
        """Waits a moment for the clients of ended conversations to ask for their last answer, and ends all sessions."""
        if any(session.conversation.is_over for session in self._sessions.values()):
            self._all_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._all_gone.wait()
        for name in list(self._sessions):
            self.leave(name, ENDED)

    def _end(self, name: str, session: _Session, why: str) -> None:
        if self._sessions.get(name) is session:  # not one of the same name that began after this one had ended
            del self._sessions[name]
        session.work()
        session.conversation.leave(why)
        if not self._sessions and self._all_gone is not None:
            self._all_gone.set()

    def _free(self, name: str) -> _Session | None:
        session = self._sessions.get(name)
        if session is not None and session.is_busy:
            raise Refused(409, "the session's last message is not answered yet: send one at a time")
        return session

    def _expire(self, name: str) -> None:
        self.leave(name, silent_for(self._idle_seconds))


class _Session:
    """One client that posts.

    Args:
        conversation: Answers it.

    Attributes:
        conversation: Answers it.
        is_busy: Whether a message is being answered.
    """

    def __init__(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.is_busy = False
        self._timer: asyncio.TimerHandle | None = None

    def work(self) -> None:
        """Notes that a message is being answered."""
        self.is_busy = True
        if self._timer is not None:
            self._timer.cancel()

    def rest(self, seconds: float, expire: Callable[[str], None], name: str) -> None:
        """Notes that the client has its answer, and some seconds for the next message."""
        self.is_busy = False
        self._timer = asyncio.get_running_loop().call_later(seconds, expire, name)
