"""The doors of a gateway: each listens for clients on one address, with one transport or several."""

from dataclasses import dataclass
from typing import Protocol

from rollcast.server_tls import ServerSecurity

from actor_client.clients.gateway import Gateway
from actor_client.exits import ActorError, ExitCode


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """What all doors of a gateway have in common.

    Attributes:
        max_message_bytes: Largest message of a client.
        max_connections: Most connections at once.
        security: The certificate, to serve TLS; None for plain text.
    """

    max_message_bytes: int
    max_connections: int
    security: ServerSecurity | None = None


class Door(Protocol):
    """Listens for clients, and has a conversation with each; see `actor_client.clients.conversation`."""

    async def open(self, gateway: Gateway) -> str:
        """Begins to listen, in the gateway's event loop; returns the address, ``host:port``.

        Raises:
            ActorError: The address cannot be used (PORT_IN_USE).
        """
        ...

    async def close(self) -> None:
        """Stops listening; conversations have ended, and their last answers may still be sent for a moment."""
        ...


def cannot_listen(address: str, flag: str) -> ActorError:
    """Returns the error for an address that is in use, or is not one of this machine."""
    return ActorError(
        ExitCode.PORT_IN_USE,
        f"cannot listen on {address}: the port is in use, or this machine has no such address; stop the program that listens "
        f"there, or choose another address with {flag} (port 0 takes any free port)",
    )
