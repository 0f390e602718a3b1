"""Tests the ports of players."""

from __future__ import annotations

import os
import socket

import grpc
import pytest
from structlog.testing import capture_logs

from actor_client import platform
from actor_client.exits import ActorError, ExitCode
from actor_client.unity import replies
from actor_client.unity.ports import LOOPBACK
from actor_client.unity.server import FAREWELL, PlayerServer
from tests.actor_client.unity.harness import METHOD


class Echo:
    """Answers with the request."""

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Returns the request."""
        return request


def echoed(server: PlayerServer, data: bytes, host: str = "127.0.0.1") -> bytes:
    """Returns what comes back."""
    address = f"[{host}]:{server.port}" if ":" in host else f"{host}:{server.port}"
    with grpc.insecure_channel(address) as channel:
        call: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(METHOD)
        return call(data, timeout=20.0)


def call_error(channel: grpc.Channel, method: str, kind: str) -> grpc.RpcError:
    """Returns the error of a call, which must fail."""
    unary: grpc.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(method)
    stream: grpc.StreamStreamMultiCallable[bytes, bytes] = channel.stream_stream(method)
    with pytest.raises(grpc.RpcError) as caught:
        list(stream(iter([b"x"]), timeout=20.0)) if kind == "stream_stream" else unary(b"x", timeout=20.0)
    return caught.value


def has_ipv6() -> bool:
    """Returns whether this machine has the IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def test_a_port_listens_on_both_loopbacks_the_machine_has() -> None:
    """The port listens on both addresses of `localhost`, or on one without IPv6."""
    server = PlayerServer(0, LOOPBACK, 0, Echo(), 1 << 20)
    server.start()
    try:
        for host in LOOPBACK if has_ipv6() else LOOPBACK[:1]:
            assert echoed(server, b"abc", host) == b"abc"
    finally:
        server.stop()


def test_a_port_that_cannot_be_had_is_one_line() -> None:
    """A port of another program or gateway, which gRPC could share, is refused with its address, and so is a foreign address."""
    first = PlayerServer(0, ["127.0.0.1"], 0, Echo(), 1 << 20)
    first.start()
    try:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            for port in (taken.getsockname()[1], first.port):
                with pytest.raises(ActorError, match=f"{port}.*in use") as caught:
                    PlayerServer(1, ["127.0.0.1"], port, Echo(), 1 << 20).start()
                assert caught.value.exit_code is ExitCode.PORT_IN_USE
                assert "\n" not in caught.value.message
    finally:
        first.stop()
    with pytest.raises(ActorError, match=r"192\.0\.2\.1"):
        PlayerServer(0, ["192.0.2.1"], 0, Echo(), 1 << 20).start()


def test_a_message_above_the_limit_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The error names size, limit and flag; the player is ended, and the next call is served."""
    server = PlayerServer(0, ["127.0.0.1"], 0, Echo(), 1 << 20)
    server.start()
    try:
        assert echoed(server, bytes((1 << 20) + 1)) == replies.farewell().SerializeToString()
        assert echoed(server, bytes(1 << 20)) == bytes(1 << 20)
    finally:
        server.stop()
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1
    assert all(part in said[0] for part in ("1048577", "1048576", "--max-player-message-bytes"))


def test_messages_far_above_the_limit_are_refused_by_grpc() -> None:
    """Messages far above the limit are refused before they are received."""
    server = PlayerServer(0, ["127.0.0.1"], 0, Echo(), 1 << 20)
    server.start()
    try:
        with pytest.raises(grpc.RpcError) as caught:
            echoed(server, bytes(3 << 20))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert echoed(server, b"small") == b"small"
    finally:
        server.stop()


def foreign_user() -> int:
    """Returns the id of a user who is not the one of this process."""
    return os.getuid() + 1


@pytest.mark.parametrize("host", LOOPBACK if has_ipv6() else LOOPBACK[:1])
def test_only_processes_of_the_player_s_user_are_served(host: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A process of another user cannot take a player's seat: it gets the farewell, and one warning is logged."""
    served = PlayerServer(0, [host], 0, Echo(), 1 << 20, owner=os.getuid())
    refusing = PlayerServer(1, [host], 0, Echo(), 1 << 20, owner=foreign_user())
    for server in (served, refusing):
        server.start()
    try:
        assert echoed(served, b"abc", host) == echoed(served, b"abc", host) == b"abc"
        assert echoed(refusing, b"abc", host) == echoed(refusing, b"abc", host) == FAREWELL
    finally:
        served.stop()
        refusing.stop()
    (said,) = capsys.readouterr().out.splitlines()
    assert "stranger_refused" in said


def test_where_the_system_names_no_user_everyone_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernel's table of connections, every client is accepted."""
    monkeypatch.setattr(platform, "_CONNECTIONS", ("/nothing/here",))
    server = PlayerServer(0, ["127.0.0.1"], 0, Echo(), 1 << 20, owner=foreign_user())
    server.start()
    try:
        assert echoed(server, b"abc") == b"abc"
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("/rollcast.v1.ActorService/OpenSession", "the learner's"),
        ("/grpc.health.v1.Health/Check", "another service"),
        ("/communicator_objects.UnityToExternalProto/Other", "another service"),
        ("/x/" + "y" * 5000, "another service"),
    ],
)
@pytest.mark.parametrize("kind", ["unary_unary", "stream_stream"])
def test_a_call_of_another_service_is_named(method: str, said: str, kind: str) -> None:
    """The client learns what it called and what the port is for, the log says it once, and players are served on."""
    server = PlayerServer(0, ["127.0.0.1"], 0, Echo(), 1 << 20)
    server.start()
    try:
        with capture_logs() as logs, grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
            for _ in range(2):
                error = call_error(channel, method, kind)
                assert error.code() is grpc.StatusCode.UNIMPLEMENTED
                assert method[:128] in (error.details() or "")
                assert said in (error.details() or "")
        assert [entry["method"] for entry in logs] == [method[:128]]
        assert echoed(server, b"abc") == b"abc"
    finally:
        server.stop()
