"""The adapter of clients: opens the doors, and acts for whoever comes in."""

from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import structlog
from rollcast.server_tls import ServerSecurity
from rollcast.tls import IdentityError, readable_by_others

from actor_client.adapters import AgentAdapter
from actor_client.clients.access import ClientAccess
from actor_client.clients.doors import Door, DoorSettings
from actor_client.clients.gateway import Gateway, GatewayLimits
from actor_client.clients.grpc_door import GrpcDoor
from actor_client.command_line import missing_extra
from actor_client.connection.session import RunInfo
from actor_client.endings import Actor
from actor_client.exits import ActorError, ExitCode
from actor_client.running import run_actor
from actor_client.settings.clients import ClientsSettings
from actor_client.settings.loading import load

if TYPE_CHECKING:
    from actor_client.clients.metrics import ClientMetrics

_SPARE_CONNECTIONS = 64
"""Connections in addition to those of all clients, for those that are told that there is no seat."""


def run_clients(flags: Mapping[str, object]) -> ExitCode:
    """Acts for clients; see `run_actor`."""
    return run_actor(ClientsAdapter, load(ClientsSettings, flags))


class ClientsAdapter(AgentAdapter):
    """Acts for clients.

    Args:
        settings: The user's settings.

    Raises:
        ActorError: A certificate, the tokens or the script of opponents cannot be used.
    """

    simulator = "clients"
    lockstep_fault = "clients do not support: each goes at its own pace; remove rollcast.lockstep from the run file"
    survives_refusals = True

    def __init__(self, settings: ClientsSettings) -> None:
        super().__init__(settings, "clients", settings.opponent)
        self.connecting = {"clients": settings.listen}
        self._settings = settings
        self._gateway: Gateway | None = None
        try:
            self._access = ClientAccess(settings.clients_auth)
            security = self._security()
        except IdentityError as error:
            raise ActorError(ExitCode.USAGE, str(error)) from None
        door = DoorSettings(settings.max_message_bytes, settings.max_clients + _SPARE_CONNECTIONS, security)
        self._doors: list[Door] = [GrpcDoor(settings.listen, door)]
        if settings.web is not None:
            self._doors.append(_web_door(settings.web, door, settings))

    def _security(self) -> ServerSecurity | None:
        """Returns the certificate that clients see; None for plain text.

        Raises:
            IdentityError: A file cannot be used.
        """
        cert, key = self._settings.clients_tls_cert, self._settings.clients_tls_key
        if cert is None or key is None:
            return None
        if readable_by_others(key):
            structlog.get_logger().warning(
                "secret_readable_by_others", file=str(key), action=f"chmod 600 {key}, unless it is mounted"
            )
        return ServerSecurity(cert, key, on_problem=_say_problem)

    def step(self, actor: Actor, run: RunInfo) -> None:
        """Acts for clients until the link stops.

        Raises:
            ActorError: An address cannot be used.
            PolicyUnusable: A policy cannot act on the observations.
        """

        async def serve() -> None:
            settings = self._settings
            self._gateway = gateway = Gateway(
                actor.link,
                run,
                GatewayLimits(settings.max_clients, settings.window_ms / 1000),
                self._access,
                script=self._script,
                observe=self.observe,
                heartbeat=actor.heartbeat,
            )
            async with AsyncExitStack() as stack:
                for door in self._doors:
                    address = await door.open(gateway)
                    stack.push_async_callback(door.close)
                    structlog.get_logger().info("listening", clients=address, transport=type(door).__name__)
                await gateway.run()

        actor.link.run(serve)

    def metrics(self) -> "ClientMetrics":
        """Returns the metrics of clients."""
        from actor_client.clients.metrics import ClientMetrics  # noqa: PLC0415 - loads prometheus_client

        return ClientMetrics(lambda: self._gateway)


def _web_door(address: str, door: DoorSettings, settings: ClientsSettings) -> Door:
    """Returns the door for WebSocket and HTTP.

    Raises:
        ActorError: aiohttp is not installed (MISSING_EXTRA).
    """
    try:
        from actor_client.clients.web.door import WebDoor  # noqa: PLC0415 - a gateway for gRPC alone needs no aiohttp
    except ModuleNotFoundError as error:
        raise missing_extra(error, "clients") from None
    return WebDoor(address, door, origins=settings.allow_origin, hosts=settings.allow_host)


def _say_problem(problem: str) -> None:
    structlog.get_logger().error("certificate_not_read", error=problem, action="the previous certificate stays in use")
