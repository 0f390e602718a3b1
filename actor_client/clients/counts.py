"""Counters of a gateway, which the thread of its event loop writes."""

from typing import Final

from actor_client.counts import STEP_SECONDS, Histogram

TRANSPORTS: Final = ("grpc", "websocket", "http")
"""What carries the messages of clients; labels of metrics."""


class ClientCounts:
    """Counters of all clients together.

    Attributes:
        connected: Clients with a seat, by transport.
        refused: Refusals because of what a client sent, or because there are too many.
        left: Clients that have left, or were refused.
        exchanges: Answered messages.
        answer_seconds: Seconds from a message to its answer, holds of the learner included.
        client_seconds: Seconds that a client takes from an answer to its next message.
    """

    def __init__(self) -> None:
        self.connected = dict.fromkeys(TRANSPORTS, 0)
        self.refused = 0
        self.left = 0
        self.exchanges = 0
        self.answer_seconds = Histogram(STEP_SECONDS)
        self.client_seconds = Histogram(STEP_SECONDS)
