"""The gateway for clients that ``serve`` starts beside the learner."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from rollcast.addresses import reached_here, split_address

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.load import LoadedRun
from learner.shared.settings.service import ServiceSettings
from learner.start.actors import actor_program, require_actors

_NAME = "clients"


@dataclass(frozen=True, slots=True)
class GatewayRequest:
    """Arguments of the gateway, an `ActorsRequest`.

    Clients find the certificate of the learner, and need a token of its file, if it has them.

    Attributes:
        listen: Address for clients with gRPC; None for the gateway's own.
        web: Address for clients with WebSocket or HTTP; None for none.
        service: The learner's addresses and files.
    """

    listen: str | None
    web: str | None
    service: ServiceSettings
    arguments: tuple[str, ...] = ()
    may_move: bool = False
    chosen: str = ""

    @property
    def names(self) -> list[str]:
        """The gateway's only name, so that it keeps its place in the run."""
        return [_NAME]

    @property
    def page(self) -> str:
        """Address of the page on which a browser is a client; empty if there is none, or at a port that is not known yet."""
        if self.web is None or not split_address(self.web)[1]:
            return ""
        return f"{'http' if self.service.identity_files.cert is None else 'https'}://{self.web}/"

    def another_machine(self, address: str) -> str:
        """Returns nothing: other machines are told how to join by a learner that waits for them."""
        del address
        return ""

    def command(self, address: str, name: str) -> list[str]:
        """Returns the command that starts the gateway.

        Args:
            address: Address of the learner, ``host:port``.
            name: Name of the gateway.
        """
        command = actor_program("clients", "--learner", reached_here(address), "--name", name)
        command += ["--log-format", "json", "--log-level", "info"]
        files = self.service.identity_files
        given = {
            "--listen": self.listen,
            "--web": self.web,
            "--clients-auth": files.tokens,
            "--clients-tls-cert": files.cert,
            "--clients-tls-key": files.key,
        }
        command += [f"{flag}={value}" for flag, value in given.items() if value is not None]
        return [*command, "--insecure"] if self.service.insecure else command


def gateway_of(parsed: argparse.Namespace, loaded: LoadedRun) -> GatewayRequest | None:
    """Returns the gateway that a command line asks for; None if it asks for none.

    Raises:
        UserError: It cannot be started.
    """
    if parsed.clients is None and parsed.clients_web is None:
        return None
    require_actors("--clients", "clients", "start the learner without it, and rollcast act clients elsewhere")
    if loaded.options.checkpoint_settings.inference:
        raise UserError(
            ExitCode.USAGE,
            "--clients is for a run that trains, and inference is true in the run file: start rollcast act clients yourself",
        )
    for flag, address in (("--clients", parsed.clients), ("--clients-web", parsed.clients_web)):
        try:
            split_address(address or "localhost:0")
        except ValueError as error:
            raise UserError(ExitCode.USAGE, f"{flag} {address} {error}") from None
    return GatewayRequest(parsed.clients, parsed.clients_web, loaded.options.rollcast)
