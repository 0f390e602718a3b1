"""The state machine of one player's connection, which runs in the thread of the player's call.

WAITING --first message--> GREETED --second--> RUNNING --any number of steps--> RUNNING
CLOSED: the player left or was refused, or the gateway ends. A first message restarts the conversation at any time: the
editor's Play button was pressed again, or the player's process was restarted.
"""

import enum
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

import structlog
from google.protobuf.message import DecodeError
from rollcast.demonstrations.framing import has_too_many_fields
from rollcast.throttle import Throttle
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityMessageProto, UnityOutputProto

from actor_client.counts import STEP_SECONDS, Histogram
from actor_client.unity import replies
from actor_client.unity.mailbox import BadPlayerData, Kind, Mailbox, Post
from actor_client.unity.replies import OK_STATUS
from actor_client.unity.server import FAREWELL, MAX_REPLY_BYTES

MAX_FIELDS: Final = 1 << 20
"""Most fields of a message: numbers are packed, so 1,000 agents with ten observations each have about 100,000."""
_REMEMBERED_PEERS: Final = 16
"""Former clients that are remembered; older ones have ended."""
_LEFT: Final = "player_left"


class ConversationCounts:
    """Counters that the thread of a player's calls writes.

    Attributes:
        exchanges: Number of answered messages.
        answer_seconds: Seconds from a message of agents to its answer, holds of the learner included.
        player_seconds: Seconds that the player takes from an answer to its next message.
        refused: Number of refusals.
    """

    __slots__ = ("answer_seconds", "exchanges", "player_seconds", "refused")

    def __init__(self) -> None:
        self.exchanges = 0
        self.answer_seconds = Histogram(STEP_SECONDS)
        self.player_seconds = Histogram(STEP_SECONDS)
        self.refused = 0


class _StrayCall(Exception):  # noqa: N818 - it need not be a fault
    """A call that does not belong to the conversation; the text describes it."""


class Phase(enum.Enum):
    """Phase of a conversation."""

    WAITING = enum.auto()
    """The player has never called."""
    GREETED = enum.auto()
    """Its first message was accepted."""
    RUNNING = enum.auto()
    """Its second message was accepted."""
    CLOSED = enum.auto()
    """It left or was refused, or the gateway ends."""


class Reader(Protocol):
    """Decodes agents' reports in the thread of the player's call; each process of a player has its own reader."""

    def read(self, output: UnityOutputProto) -> Any:
        """Returns the content of a `Kind.STEP` post.

        Raises:
            BadPlayerData: The report cannot be used.
        """
        ...


def _parsed(request: bytes) -> UnityMessageProto:
    """Returns a message, after counting its fields: an empty one takes a hundred times as much memory as bytes.

    Raises:
        _StrayCall: The bytes are no message, or one of too many fields.
    """
    if has_too_many_fields(request, UnityMessageProto, MAX_FIELDS):
        raise _StrayCall(f"{len(request)} bytes with more than {MAX_FIELDS} fields")
    try:
        return UnityMessageProto.FromString(request)
    except DecodeError:
        raise _StrayCall(f"{len(request)} bytes that are not an ML-Agents message") from None


class Conversation:
    """The conversation with one player.

    Args:
        worker: The player's number in this actor.
        mailbox: The mailbox for its messages.
        again: How a player that has left comes back, for the log; empty for one that is restarted.
        clock: Monotonic seconds.

    Attributes:
        worker: The player's number in this actor.
        phase: The present phase.
        waiting_since: Start of the wait for the player's next message, in monotonic seconds; None while the player
            awaits an answer.
        fault: Why the player was refused, in one line; empty if it was not.
        reader: Decodes steps; the gateway sets it when it answers the first message.
        counts: Counts of its messages.
    """

    def __init__(
        self, worker: int, mailbox: Mailbox, *, again: str = "", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.worker = worker
        self.phase = Phase.WAITING
        self.waiting_since: float | None = clock()
        self.fault = ""
        self.reader: Reader | None = None
        self.counts = ConversationCounts()
        self._mailbox = mailbox
        self._next = {"next": again} if again else {}
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: Post | None = None
        self._pending_since = 0.0
        self._ended = False
        self._peer = ""
        self._replaced: deque[str] = deque(maxlen=_REMEMBERED_PEERS)
        self._notices = Throttle()
        self._log = structlog.get_logger()

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Returns the answer to a message; blocks until it is available. Never raises.

        Args:
            request: The message.
            peer: The sender's address. Messages of a client that a later one has replaced (an editor that was left
                open, a suspended process that resumes) are not served.
        """
        try:
            message = _parsed(request)
            post = self._admitted(message, peer)
            if post is None:
                return FAREWELL
            reader = self.reader
            if post.kind is Kind.STEP and reader is not None:
                post.content = reader.read(message.unity_output)
        except _StrayCall as error:
            return self._turn_away(str(error))
        except BadPlayerData as error:
            return self.refuse(str(error))
        except Exception:  # noqa: BLE001 - logged with its traceback; the other players are served
            self._log.exception("player_message_failed", worker=self.worker)
            return self.refuse(
                f"a message of player {self.worker} made the gateway fail; please report the traceback above"
            )
        if not post.is_answered:  # the player's process may have gone during decoding
            self._mailbox.put_and_wait(post)
        return self._answered(post)

    def close(self) -> None:
        """Ends the conversation and answers all present and later calls with the farewell; any thread may call it."""
        with self._lock:
            self._ended = True
            self._end(Phase.CLOSED)

    def forget(self) -> None:
        """Returns to WAITING, since the player's process has gone; any thread may call it."""
        with self._lock:
            self._end(Phase.WAITING)
            self.fault = ""
            self.waiting_since = self._clock()

    def _end(self, phase: Phase) -> None:
        pending, self._pending = self._pending, None
        self.phase = phase
        self.reader = None
        self.waiting_since = None
        if pending is not None:
            pending.answer(replies.farewell())

    def _admitted(self, message: UnityMessageProto, peer: str) -> Post | None:
        """Returns the post for a message; None if the answer is the farewell.

        Raises:
            BadPlayerData: The player's protocol version is not supported.
            _StrayCall: The message is from another client, or out of order.
        """
        output = message.unity_output
        has_agents = output.HasField("rl_output")
        is_hello = output.HasField("rl_initialization_output") and not has_agents
        with self._lock:
            if self._ended:
                return None
            if not message.HasField("header"):
                raise _StrayCall("a message without a header")
            if peer in self._replaced and not is_hello:
                raise _StrayCall("a message of a player that another one has replaced")
            if message.header.status != OK_STATUS:
                self._leave(_LEFT)
                return None
            if is_hello:
                self._leave("player_began_again")
                self._seat(peer)
                self.fault = ""
                if fault := replies.fault(self.worker, output.rl_initialization_output):
                    raise BadPlayerData(fault)
                self.phase = Phase.GREETED
                return self._pend(Post(Kind.HELLO, self.worker, output.rl_initialization_output))
            if self._pending is not None:
                raise _StrayCall("a message that came before the previous one was answered")
            if self.phase is Phase.GREETED and not has_agents:
                self.phase = Phase.RUNNING
                return self._pend(Post(Kind.READY, self.worker))
            if self.phase is Phase.RUNNING and has_agents:
                return self._pend(Post(Kind.STEP, self.worker))
            raise _StrayCall("a message out of order; was the player started before this gateway?")

    def _seat(self, peer: str) -> None:
        """Notes the client that began. Its address may change: gRPC reconnects after a long pause of an editor."""
        if self._peer and self._peer != peer:
            self._replaced.append(self._peer)
        if peer in self._replaced:
            self._replaced.remove(peer)
        self._peer = peer

    def _pend(self, post: Post) -> Post:
        now = self._clock()
        if post.kind is Kind.STEP and self.waiting_since is not None:
            self.counts.player_seconds.add(now - self.waiting_since)
        self._pending, self._pending_since = post, now
        self.waiting_since = None
        return post

    def _answered(self, post: Post) -> bytes:
        """Returns the encoded answer to a post."""
        with self._lock:
            if self._pending is post:
                self._pending = None
                self.waiting_since = now = self._clock()
                self.counts.exchanges += 1
                if post.kind is Kind.STEP:
                    self.counts.answer_seconds.add(now - self._pending_since)
        encoded = post.reply.SerializeToString()
        if len(encoded) < MAX_REPLY_BYTES:
            return encoded
        return self.refuse(
            f"the answer to player {self.worker} has {len(encoded)} bytes, but players accept fewer than "
            f"{MAX_REPLY_BYTES}: use fewer agents in each player, or shorter messages of side channels"
        )

    def _turn_away(self, what: str) -> bytes:
        """Ends one call, which may not be the player's; the conversation continues."""
        if (left_out := self._notices.admit("stray")) is not None:
            self._log.warning("stray_call", worker=self.worker, what=what, answer="400", left_out=left_out)
        return FAREWELL

    def _leave(self, event: str) -> None:
        """Ends the present conversation. Called under the lock."""
        if self.phase not in {Phase.GREETED, Phase.RUNNING}:
            return
        self._end(Phase.CLOSED)
        self._log.info(event, worker=self.worker, **(self._next if event == _LEFT else {}))
        self._mailbox.put(Post(Kind.LEFT, self.worker))

    def refuse(self, fault: str) -> bytes:
        """Ends the conversation because of an unusable message; any thread may call it.

        Args:
            fault: The fault, in one line.

        Returns:
            The answer that makes a player quit.
        """
        with self._lock:
            if not self._ended and not self.fault:
                self.fault = fault
                self.counts.refused += 1
                self._log.error("player_refused", worker=self.worker, reason=fault, **self._next)
            if self.phase is not Phase.CLOSED:
                self._end(Phase.CLOSED)
                self._mailbox.put(Post(Kind.LEFT, self.worker))
        return FAREWELL
