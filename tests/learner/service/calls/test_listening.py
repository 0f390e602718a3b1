"""Tests of the ports that a learner keeps while its trainers start again."""

from __future__ import annotations

import socket

import pytest

from learner.service.calls.listening import hold, require_free
from learner.shared.exits import ExitCode, UserError


def test_a_held_port_is_nobody_elses() -> None:
    """A connection of another program cannot get a held port; when it is freed, a server can."""
    with hold(["127.0.0.1:0"]) as held:
        (bound,) = held
        address = bound.getsockname()
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind(address)
        held.close()
        socket.create_server(address).close()


def test_what_is_not_free_is_left_out() -> None:
    """A port in use and the name of an unknown host are for the server to report."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert hold([address, "no.such.host.invalid:1"]) == []
        with pytest.raises(UserError, match=f"cannot listen on {address}: the port is in use") as caught:
            require_free(address, "--address")
    assert caught.value.exit_code is ExitCode.PORT_IN_USE
    require_free(address, "--address")
