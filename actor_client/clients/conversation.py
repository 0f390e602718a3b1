"""The conversation with one client, whatever carries its messages: gRPC, WebSocket or HTTP.

A transport runs in the gateway's event loop, and has one conversation for each stream of a client:

    conversation = gateway.accept("websocket", peer)
    try:
        while not conversation.is_over:
            answer = await conversation.exchange(parsed(data))      # a message of the client
            ...                                                     # the transport sends the answer
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
from typing import TYPE_CHECKING, Final

import structlog
from rollcast.v1 import client_pb2

from actor_client.clients.messages import BadClientData

if TYPE_CHECKING:
    from actor_client.clients.gateway import Gateway
    from actor_client.clients.simulator import ClientSimulator

_log = structlog.get_logger(__name__)

NOT_ANSWERED: Final = "a message came before the previous one was answered; send the next one after the answer"


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
        heard_at: When the client's last message came, in monotonic seconds.
    """

    def __init__(
        self, gateway: Gateway, transport: str, peer: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.transport = transport
        self.peer = peer
        self.simulator: ClientSimulator | None = None
        self.goodbye = ""
        self.heard_at = clock()
        self._gateway = gateway
        self._clock = clock
        self._pending: Future[client_pb2.PlayResponse] | None = None

    @property
    def is_over(self) -> bool:
        """True once the last answer was given: the transport sends it, and closes."""
        return bool(self.goodbye)

    async def exchange(self, request: client_pb2.PlayRequest) -> client_pb2.PlayResponse:
        """Returns the answer to a message, once there is one; one with a `goodbye` is the last."""
        if self.goodbye:
            return client_pb2.PlayResponse(goodbye=self.goodbye)
        if self._pending is not None:
            return self.refuse(NOT_ANSWERED)
        self.heard_at = self._clock()
        try:
            answer = self._gateway.take(self, request)
        except BadClientData as error:
            return self.refuse(str(error))
        except Exception:  # logged with its traceback; the other clients are served
            _log.exception("client_message_failed", peer=self.peer)
            return self.refuse("this message made the gateway fail; its log has the traceback, please report it")
        if isinstance(answer, client_pb2.PlayResponse):
            return answer
        self._pending = answer
        try:
            return await answer
        finally:
            self._pending = None

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
