"""Tests the choice of the learner's address when other runs and learners exist."""

from __future__ import annotations

import socket

import pytest

from actor_client.unity.dropin.addresses import reserved_address
from actor_client.unity.dropin.exits import DropInError, ExitCode
from tests.ports import reserve_ports


def test_a_free_port_is_taken() -> None:
    """A free requested address is used for learner and players."""
    port = reserve_ports()
    with reserved_address(f"127.0.0.1:{port}", may_move=False) as found:
        assert found == (f"127.0.0.1:{port}", f"127.0.0.1:{port}", port, True, False)
        with socket.socket() as listener:  # as the learner does, later
            listener.bind(("127.0.0.1", port))
            listener.listen()


def test_runs_side_by_side_get_ports_of_their_own() -> None:
    """Two runs that start at the same time never share a port."""
    address = f"127.0.0.1:{reserve_ports()}"
    with reserved_address(address, may_move=True) as first, reserved_address(address, may_move=True) as second:
        assert first.is_usual
        assert not second.is_usual
        assert first.port != second.port
    with reserved_address(address, may_move=True) as third:
        assert third.is_usual


def test_a_learner_that_runs_keeps_its_port() -> None:
    """A running learner keeps its port: another is chosen, or the requested one is refused."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        with reserved_address(address, may_move=True) as found:
            assert found.listen != address
        with (
            pytest.raises(DropInError, match=f"{address}: .*--address") as caught,
            reserved_address(address, may_move=False),
        ):
            pass
    assert caught.value.exit_code == ExitCode.PORT_IN_USE


def test_a_learner_for_other_machines_is_found_on_this_one() -> None:
    """A learner on 0.0.0.0 is reached at a loopback address."""
    with reserved_address("0.0.0.0:0", may_move=False) as found:
        assert found.listen == f"0.0.0.0:{found.port}"
        assert found.local == f"127.0.0.1:{found.port}"
        assert found.is_shared


def test_an_address_of_another_machine() -> None:
    """An address of another machine is refused in one line."""
    with pytest.raises(DropInError, match="--address") as caught, reserved_address("192.0.2.1:0", may_move=False):
        pass
    assert caught.value.exit_code == ExitCode.PORT_IN_USE
