"""Tests the gateway for clients that a learner starts beside itself."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest
import yaml

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.load import load_run_options
from learner.start.clients import GatewayRequest, gateway_of


def asked_for(tmp_path: Path, clients: str | None, web: str | None, **rollcast: object) -> GatewayRequest | None:
    """Returns the gateway of a command line."""
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({"behaviors": {"Walker": {"trainer_type": "ppo"}}, "rollcast": rollcast}))
    return gateway_of(argparse.Namespace(clients=clients, clients_web=web), load_run_options(path))


@pytest.mark.parametrize(
    ("web", "page"),
    [
        ("127.0.0.1:50053", "http://127.0.0.1:50053/"),
        ("[::]:50053", "http://[::]:50053/"),
        ("127.0.0.1:0", ""),
        (None, ""),
    ],
)
def test_the_page_of_clients(tmp_path: Path, web: str | None, page: str) -> None:
    """The status page names the gateway's page, if its port is known."""
    request = asked_for(tmp_path, "127.0.0.1:50052", web)
    assert request is not None
    assert request.page == page


def test_no_gateway(tmp_path: Path) -> None:
    """Without an address there is none."""
    assert asked_for(tmp_path, None, None) is None


@pytest.mark.parametrize(
    ("clients", "web", "flag"), [("here", None, "--clients here"), (None, "http://h:1", "--clients-web http://h:1")]
)
def test_an_address_that_is_none(tmp_path: Path, clients: str | None, web: str | None, flag: str) -> None:
    """A wrong address is refused before the run begins, with its flag."""
    with pytest.raises(UserError, match=f"^{flag} must be host:port") as caught:
        asked_for(tmp_path, clients, web)
    assert caught.value.exit_code is ExitCode.USAGE


def test_clients_find_the_identity_of_the_learner(tmp_path: Path) -> None:
    """A gateway has the learner's certificate and tokens; in plain text it is open to others where the learner is."""
    request = asked_for(tmp_path, "127.0.0.1:1", None, certs="certs")
    assert request is not None
    command = request.command("0.0.0.0:7", "clients")
    assert command[command.index("--learner") + 1] == "127.0.0.1:7"
    assert {
        "--listen=127.0.0.1:1",
        "--clients-auth=certs/tokens",
        "--clients-tls-cert=certs/server.pem",
        "--clients-tls-key=certs/server.key",
    } <= set(command)
    request = asked_for(tmp_path, "0.0.0.0:1", None, insecure=True)
    assert request is not None
    assert "--insecure" in request.command("127.0.0.1:7", "clients")
