"""A gateway for clients on a real port, for a scripted learner."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from pathlib import Path
from threading import Event
from typing import Any

from rollcast.server_tls import ServerSecurity
from rollcast.v1 import policy_pb2

from actor_client.clients.access import ClientAccess
from actor_client.clients.doors import DoorSettings
from actor_client.clients.gateway import Gateway, GatewayLimits
from actor_client.clients.grpc_door import GrpcDoor
from actor_client.clients.web.door import WebDoor
from actor_client.connection.link import LearnerLink
from actor_client.policy.actions import PolicyUnusable
from tests.actor_client.acting import Acting, started_link
from tests.actor_client.scripted import DEAD_SECONDS, ScriptedLearner
from tests.playing import Player


class Served(Acting):
    """A running gateway.

    Attributes:
        gateway: The gateway.
        address: Where clients call.
        web: Where those call that have no gRPC.
    """

    gateway: Gateway
    address: str
    web: str

    def __init__(self, learner: ScriptedLearner, link: LearnerLink) -> None:
        super().__init__(learner, link, ends_with=PolicyUnusable)
        self._clients = ExitStack()

    def player(self) -> Player:
        """Returns a client that has not said who it is."""
        return Player(self.address)

    def rows(self, behavior: str = "Ball") -> int:
        """Returns the number of steps that the learner has taken."""
        index = self.learner.indices[behavior]
        return sum(chunk.rows for chunk in self.learner.chunks if chunk.behavior_index == index)

    def books(self, behavior: str = "Ball") -> Any:
        """Returns what became of the steps."""
        view = self.link.books()[behavior]
        assert view.balanced, view
        return view

    def reset(self) -> None:
        """Asks the clients to reset, and returns once the gateway has the request."""
        current = self.link.assignment
        number = 1 if current is None else current.id + 1
        self.learner.assign(policy_pb2.Assignment(id=number, reset=policy_pb2.RESET_MODE_NOW))
        self.follow(number)

    def follow(self, number: int) -> None:
        """Waits until the gateway does what an assignment asks for."""
        self.learner.wait_until(lambda: self.gateway._loop.assignment.id == number)

    def left(self, clients: int) -> None:
        """Waits until so many clients have left."""
        self.learner.wait_until(lambda: self.gateway.counts.left == clients)


@contextmanager
def serving(
    learner: ScriptedLearner,
    limits: GatewayLimits = GatewayLimits(),  # noqa: B008 - frozen
    *,
    token_file: Path | None = None,
    max_message_bytes: int = 1 << 20,
    security: ServerSecurity | None = None,
) -> Iterator[Served]:
    """Starts a gateway; checks at the end that its books balance."""
    link = started_link(learner, survives_refusals=True)
    run_info = link.open(DEAD_SECONDS)
    served = Served(learner, link)
    is_open = Event()

    async def serve() -> None:
        served.gateway = gateway = Gateway(link, run_info, limits, ClientAccess(token_file))
        settings = DoorSettings(max_message_bytes, limits.max_clients + 64, security)
        async with AsyncExitStack() as stack:
            doors = GrpcDoor("127.0.0.1:0", settings), WebDoor("127.0.0.1:0", settings)
            for door in doors:
                stack.push_async_callback(door.close)
            served.address, served.web = [await door.open(gateway) for door in doors]
            is_open.set()
            await gateway.run()

    with served.running(lambda: link.run(serve)):
        assert is_open.wait(DEAD_SECONDS)
        yield served
