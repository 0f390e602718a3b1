"""A gateway without a learner, which acts at random, and the door to it."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from rollcast.v1.client_pb2 import AgentActions, AgentState, Environment, PlayRequest, PlayResponse

from actor_client.clients.conversation import Conversation
from actor_client.clients.counts import ClientCounts
from actor_client.clients.doors import DoorSettings
from actor_client.clients.gateway import Gateway
from actor_client.clients.messages import BadClientData
from actor_client.clients.web.door import WebDoor

SECONDS = 60.0
"""Limit for what must happen."""
MAX_MESSAGE_BYTES = 150_000


class StandIn(Gateway):
    """Acts at random for every agent that asks; its first branch has two choices.

    Attributes:
        conversations: All that it had.
        lefts: How clients left, in words.
        held: While set, what waits instead of an answer.
        messages: Number of messages that came.
    """

    def __init__(self) -> None:
        self.conversations: list[Conversation] = []
        self.lefts: list[str] = []
        self.held: asyncio.Future[PlayResponse] | None = None
        self.asked = asyncio.Event()
        self.has_left = asyncio.Event()
        self.messages = 0
        self.counts = ClientCounts()
        self._greeted: set[Conversation] = set()

    def accept(self, transport: str, peer: str) -> Conversation:
        """Returns the conversation with a client."""
        conversation = Conversation(self, transport, peer)
        self.conversations.append(conversation)
        return conversation

    def take(self, conversation: Conversation, request: PlayRequest) -> asyncio.Future[PlayResponse]:
        """Returns random actions, or what is held."""
        self.messages += 1
        self.asked.set()
        if request.HasField("hello") is (conversation in self._greeted):
            raise BadClientData("hello belongs into the first message, and into no other")
        first = conversation not in self._greeted
        self._greeted.add(conversation)
        if self.held is not None:
            return self.held
        answer = PlayResponse(environment=Environment(seed=7)) if first else PlayResponse()
        for steps in request.steps:
            states = steps.states or [AgentState.AGENT_STATE_UNSPECIFIED] * len(steps.agents)
            asking = [agent for agent, state in zip(steps.agents, states, strict=True) if state == 0]
            choices = [random.randrange(2) for _ in asking]
            answer.actions.append(AgentActions(behavior=steps.behavior, agents=asking, discrete=choices))
        future: asyncio.Future[PlayResponse] = asyncio.get_running_loop().create_future()
        future.set_result(answer)
        return future

    def refused(self, conversation: Conversation, fault: str) -> None:
        """Does nothing."""

    def left(self, conversation: Conversation, why: str) -> None:
        """Notes how a client left."""
        self.lefts.append(why)
        self.has_left.set()

    def end(self, why: str) -> None:
        """Ends all conversations."""
        for conversation in self.conversations:
            conversation.end(why)


@asynccontextmanager
async def serving(gateway: StandIn | None = None, **options: Any) -> AsyncIterator[tuple[StandIn, str]]:
    """Serves a gateway on loopback for a block; yields it and its address, ``host:port``."""
    gateway = gateway or StandIn()
    settings = DoorSettings(
        options.pop("max_message_bytes", MAX_MESSAGE_BYTES),
        options.pop("max_connections", 64),
        options.pop("security", None),
    )
    limit = options.pop("seconds", SECONDS)
    door = WebDoor(options.pop("address", "127.0.0.1:0"), settings, **options)
    address = await door.open(gateway)
    try:
        async with asyncio.timeout(limit):
            yield gateway, address
    finally:
        await door.close()


@contextmanager
def serving_in_thread(**options: Any) -> Iterator[tuple[StandIn, str]]:
    """Serves a gateway in a thread for a block; yields it and its address, ``host:port``."""
    ready: Future[tuple[StandIn, str]] = Future()
    over = threading.Event()

    async def serve() -> None:
        async with serving(seconds=None, **options) as served:
            ready.set_result(served)
            await asyncio.to_thread(over.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        yield ready.result(SECONDS)
    finally:
        over.set()
        thread.join()
