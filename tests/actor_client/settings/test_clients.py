"""Tests the settings of `rollcast act clients`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actor_client.exits import ActorError, ExitCode
from actor_client.settings.clients import ClientsSettings
from actor_client.settings.loading import load


def loaded(**flags: Any) -> ClientsSettings:
    """Returns the settings of flags alone."""
    return load(ClientsSettings, flags, {})


def test_what_holds_without_flags() -> None:
    """A gateway listens on this machine alone, for gRPC alone."""
    settings = loaded()
    assert (settings.listen, settings.web) == ("127.0.0.1:50052", None)
    assert (settings.max_clients, settings.max_message_bytes, settings.window_ms) == (1024, 4 << 20, 2.0)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"listen": "nowhere"}, "--listen 'nowhere': must be host:port"),
        ({"web": "h:70000"}, "--web 'h:70000': must be host:port"),
        ({"max_clients": "0"}, "--max-clients '0'"),
        ({"max_message_bytes": "1"}, "--max-message-bytes '1'"),
        ({"window_ms": "nan"}, "--window-ms 'nan'"),
        ({"clients_tls_cert": "a"}, "clients_tls_cert and clients_tls_key belong together"),
        ({"listen": "0.0.0.0:1"}, "0.0.0.0:1 can be reached from other machines without a token"),
        ({"listen": "h:1", "clients_auth": "t"}, "h:1 can be reached from other machines in plain text"),
        (
            {"web": "h:1", "clients_tls_cert": "a", "clients_tls_key": "b"},
            "h:1 can be reached from other machines without a token",
        ),
    ],
)
def test_wrong_settings_are_one_line(flags: dict[str, str], says: str) -> None:
    """The error names the flag, and what would open the door to strangers is refused."""
    with pytest.raises(ActorError) as caught:
        loaded(**flags)
    assert caught.value.exit_code is ExitCode.USAGE
    assert says in caught.value.message


def test_doors_may_be_open_with_a_token_and_tls_or_on_purpose() -> None:
    """A gateway for other machines has both, or its user trusts the network."""
    secure = {"clients_auth": "tokens", "clients_tls_cert": "cert", "clients_tls_key": "key"}
    assert loaded(listen="0.0.0.0:1", web="h:2", **secure).clients_auth == Path("tokens")
    assert loaded(listen="0.0.0.0:1", insecure=True).listen == "0.0.0.0:1"
