"""Acts for all clients of a process: takes their messages, acts in one batch per policy, and answers them."""

from __future__ import annotations

from asyncio import Future

from rollcast.v1 import client_pb2

from actor_client.clients.conversation import Conversation


class Gateway:
    """Serves all clients of one process until the link stops; all methods are for the event loop's thread."""

    def accept(self, transport: str, peer: str) -> Conversation:
        """Returns the conversation with a client that connected; one that is over already if there are too many.

        Args:
            transport: What carries its messages: ``grpc``, ``websocket`` or ``http``.
            peer: Its address, for the log.
        """
        raise NotImplementedError

    def take(
        self, conversation: Conversation, request: client_pb2.PlayRequest
    ) -> client_pb2.PlayResponse | Future[client_pb2.PlayResponse]:
        """Takes a message; returns its answer, or the future one. For `Conversation`.

        Raises:
            BadClientData: The message cannot be used.
        """
        raise NotImplementedError

    def refused(self, conversation: Conversation, fault: str) -> None:
        """Counts a refusal, and warns of it. For `Conversation`."""
        raise NotImplementedError

    def left(self, conversation: Conversation, why: str) -> None:
        """Ends the episodes of a client's agents, and frees its seat. For `Conversation`."""
        raise NotImplementedError
