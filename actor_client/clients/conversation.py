"""The conversation with one client, whatever carries its messages: gRPC, WebSocket or HTTP.

A transport runs in the gateway's event loop, and has one conversation for each stream of a client:

    conversation = gateway.accept("websocket", peer)
    try:
        while True:
            answer = await conversation.exchange(parsed(data))      # a message of the client
            ...                                                     # the transport sends the answer
            if answer.goodbye:                                      # not `is_over`: it may have ended after this answer
                break
    except BadClientData as error:                                  # of `parsed`, or what the transport found
        answer = conversation.refuse(str(error))                    # the goodbye, which it sends too
    finally:
        conversation.leave("its connection ended")

`exchange` never raises for a fault of the client: its answer has a `goodbye` then, and `is_over` is true. It is cancelled when
the transport's task is, because the connection ended while the client waited; `leave` then ends its agents' episodes. A
transport calls `exchange` again only after it returned; if it does, the client is refused. All methods are for the thread of
the event loop.
"""

from __future__ import annotations

import time
from asyncio import Future
from collections.abc import Callable
from typing import Final, Protocol

import structlog
from rollcast.v1 import client_pb2

from actor_client.clients.counts import ClientCounts
from actor_client.clients.messages import BadClientData
from actor_client.clients.simulator import ClientSimulator

_log = structlog.get_logger(__name__)

NOT_ANSWERED: Final = "a message came before the previous one was answered; send the next one after the answer"


class Host(Protocol):
    """Acts for the clients; `actor_client.clients.gateway.Gateway`.

    Attributes:
        counts: Counts of the clients.
    """

    counts: ClientCounts

    def take(self, conversation: Conversation, request: client_pb2.PlayRequest) -> Future[client_pb2.PlayResponse]:
        """Takes a message; returns its answer, which may have come already.

        Raises:
            BadClientData: The message cannot be used.
        """

    def refused(self, conversation: Conversation, fault: str) -> None:
        """Counts a refusal, and warns of it."""

    def left(self, conversation: Conversation, why: str) -> None:
        """Ends the episodes of a client's agents, and frees its seat."""


class Conversation:
    """One client's conversation; `Gateway.accept` makes it.

    Args:
        gateway: The gateway that acts for it.
        transport: What carries its messages, for the log and the metrics: ``grpc``, ``websocket`` or ``http``.
        peer: Its address, for the log.
        clock: Monotonic seconds.

    Attributes:
        transport: What carries its messages.
        peer: Its address.
        simulator: The client as the gateway's loop sees it; None before its `hello` was accepted, and after it left.
        goodbye: Why it is over, in one line; empty while it goes on.
        heard_at: When the client's last message came or was answered, in monotonic seconds.
        hang_up: Closes the connection of a client whose next message is not waited for; the transport sets it.
    """

    def __init__(
        self, gateway: Host, transport: str, peer: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self.peer = peer
        self.simulator: ClientSimulator | None = None
        self.goodbye = ""
        self.heard_at = clock()
        self.hang_up: Callable[[], object] = _nothing
        self._gateway = gateway
        self._clock = clock
        self._pending: Future[client_pb2.PlayResponse] | None = None

    @property
    def is_over(self) -> bool:
        """True once it has ended; an answer that was on its way then is not the last one, the next has the goodbye."""
        return bool(self.goodbye)

    async def exchange(self, request: client_pb2.PlayRequest) -> client_pb2.PlayResponse:
        """Returns the answer to a message, once there is one; one with a `goodbye` is the last."""
        if self.goodbye:
            return client_pb2.PlayResponse(goodbye=self.goodbye)
        if self._pending is not None:
            return self.refuse(NOT_ANSWERED)
        now = self._clock()
        if self.simulator is not None:
            self._gateway.counts.client_seconds.add(now - self.heard_at)
        self.heard_at = now
        try:
            answer = self._gateway.take(self, request)
        except BadClientData as error:
            return self.refuse(str(error))
        except Exception:  # noqa: BLE001 - logged with its traceback; the other clients are served
            _log.exception("client_message_failed", peer=self.peer)
            return self.refuse("this message made the gateway fail; its log has the traceback, please report it")
        self._pending = answer
        try:
            return await answer
        finally:
            self._pending = None
            self.heard_at = self._clock()
            self._gateway.counts.answer_seconds.add(self.heard_at - now)

    def refuse(self, fault: str) -> client_pb2.PlayResponse:
        """Ends the conversation because of what the client sent, and returns the goodbye.

        Args:
            fault: The fault, in one line.
        """
        if not self.goodbye:
            self._gateway.refused(self, fault)
            self.end(fault)
        return client_pb2.PlayResponse(goodbye=self.goodbye)

    def leave(self, why: str) -> None:
        """Notes that the client has gone: its agents' episodes are interrupted. No effect after the first time.

        Args:
            why: How it left, in words, for the log.
        """
        self.end(why)

    def end(self, why: str) -> None:
        """Ends the conversation, and answers a message that waits."""
        if self.goodbye:
            return
        self.goodbye = why
        if self._pending is not None and not self._pending.done():
            self._pending.set_result(client_pb2.PlayResponse(goodbye=why))
        self._gateway.left(self, why)


def _nothing() -> None:
    """Does nothing, for a transport that notices by itself."""
