"""The port of one player: bytes in, bytes out. Imports nothing heavy, so that the port is open when players call."""

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Protocol

import grpc
from rollcast.addresses import ip_of, join_address

from actor_client.platform import own_user, users_of_connection
from actor_client.settings.addresses import Ports
from actor_client.unity.ports import fault_of, is_absent, refused

MAX_REPLY_BYTES: Final = 4 * 1024 * 1024
"""Largest message that a player's gRPC accepts by default; players change no options."""
_SERVICE: Final = "communicator_objects.UnityToExternalProto"
_METHOD: Final = "Exchange"
# A player makes one call at a time. A second thread serves its next call after a restart, and a third thread serves
# strangers. gRPC refuses further calls before it reads them.
_THREADS: Final = 4
_RECEIVED_SHARE: Final = 2
FAREWELL: Final = b"\x0a\x03\x08\x90\x03"
"""A UnityMessageProto whose header has status 400, as bytes to avoid loading the generated code."""
_KNOWN_SECONDS: Final = 1.0
"""Seconds for which a peer stays known; looking it up for each message would take longer than the message."""
_MOST_METHODS: Final = 8
_MOST_METHOD_CHARS: Final = 128
_FAREWELL_SECONDS: Final = 1.0
"""Seconds for waiting answers to be sent."""


class MessageHandler(Protocol):
    """Answers a player; `actor_client.unity.conversation.Conversation` is the real one."""

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Returns the answer to a message of the client at an address; blocks until there is one."""
        ...


class PlayerListener:
    """Holds the calls of a player until its conversation exists."""

    def __init__(self) -> None:
        self._decided = threading.Event()
        self._conversation: MessageHandler | None = None

    def exchange(self, request: bytes, peer: str = "") -> bytes:
        """Answers a message, after `open` or `close` was called."""
        self._decided.wait()
        return FAREWELL if self._conversation is None else self._conversation.exchange(request, peer)

    def open(self, conversation: MessageHandler) -> None:
        """Lets a conversation answer all calls, waiting ones included."""
        self._conversation = conversation
        self._decided.set()

    def close(self) -> None:
        """Ends waiting calls without a conversation; has no effect after `open`."""
        self._decided.set()


class PeerCheck:
    """Decides whether a client is a process of the user who started the players.

    Any process of the machine can connect to a port on loopback, and would take the seat of a player. Where the system
    does not say whose a connection is, every client is accepted.

    Args:
        owner: The user id; None accepts every client.
    """

    def __init__(self, owner: int | None) -> None:
        self._owner = owner
        self._known: tuple[str, float] = ("", 0.0)

    def accepts(self, peer: str, port: int) -> bool:
        """Returns whether a client may call.

        Args:
            peer: Its address, as gRPC gives it: ``ipv4:127.0.0.1:1234``, ``ipv6:[::1]:1234``.
            port: The port that it called.
        """
        if self._owner is None:
            return True
        known, until = self._known
        if peer == known and time.monotonic() < until:
            return True
        host, peer_port = _address(peer)
        if peer_port is None or not _is_loopback(host):
            return True  # of another machine: only with an address that was opened on purpose
        users = users_of_connection(peer_port, port)
        if users is not None and users != {self._owner}:
            return False
        self._known = (peer, time.monotonic() + _KNOWN_SECONDS)
        return True


def _address(peer: str) -> tuple[str, int | None]:
    """Returns host and port of a client; no port if the text has another form."""
    host, _, port = peer.replace("%5B", "[").replace("%5D", "]").partition(":")[2].rpartition(":")
    return host.strip("[]"), int(port) if port.isascii() and port.isdecimal() else None


def _is_loopback(host: str) -> bool:
    address = ip_of(host)
    return address is not None and address.is_loopback


class _OtherServices(grpc.GenericRpcHandler):
    """Refuses calls that no player makes, and names them: an actor or a command was given a player's port."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._told: set[str] = set()

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes]":
        """Returns a handler that ends the call with the method that it called, and logs it once."""
        method = handler_call_details.method[:_MOST_METHOD_CHARS]
        text = (
            f"this is the port of a Unity player, which calls /{_SERVICE}/{_METHOD}; {method} is of another service: give "
            "its client the address of that service"
        )
        if method.startswith("/rollcast."):
            text += ", which is the learner's; its log has the address"
        if method not in self._told and len(self._told) < _MOST_METHODS:
            import structlog  # noqa: PLC0415 - as below

            self._told.add(method)
            structlog.get_logger().warning("another_service_called", worker=self._worker, method=method, next=text)

        def refuse(_: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, text)

        return grpc.stream_stream_rpc_method_handler(refuse)


class PlayerServer:
    """Serves one player on its own port, on each of the given addresses.

    Args:
        worker: The player's number in this actor.
        hosts: Addresses to listen on. One of `LOOPBACK` may be missing, because not every machine has IPv6.
        port: The port on all addresses; 0 takes a free one.
        conversation: Answers the messages.
        max_message_bytes: The largest message that is accepted.
        owner: User id of the processes that may call from this machine; None for any.

    Attributes:
        worker: The player's number in this actor.
        port: The listening port, known after `start`.
    """

    def __init__(
        self,
        worker: int,
        hosts: Sequence[str],
        port: int,
        conversation: MessageHandler,
        max_message_bytes: int,
        *,
        owner: int | None = None,
    ) -> None:
        self.worker = worker
        self.port = port
        self._hosts = tuple(hosts)
        self._conversation = conversation
        self._max_message_bytes = max_message_bytes
        self._peers = PeerCheck(owner)
        self._has_warned = False
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Starts to listen.

        Raises:
            ActorError: The port is in use, or an address is not one of this machine (PORT_IN_USE).
        """
        server = grpc.server(
            ThreadPoolExecutor(_THREADS, thread_name_prefix=f"rollcast-player-{self.worker}"),
            options=[
                # By default a second server binds the same port without an error, and the kernel distributes players
                # between them.
                ("grpc.so_reuseport", 0),
                # Above this gRPC ends the call without an explanation; below it, the handler can explain the refusal.
                ("grpc.max_receive_message_length", _RECEIVED_SHARE * self._max_message_bytes),
                ("grpc.max_send_message_length", MAX_REPLY_BYTES),
            ],
            maximum_concurrent_rpcs=_THREADS,
        )
        handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.unary_unary_rpc_method_handler(self._exchange)
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(_SERVICE, {_METHOD: handler}), _OtherServices(self.worker))
        )
        bound = 0
        for host in self._hosts:
            bound += self._bind(server, host)
        if not bound:
            raise refused(", ".join(self._hosts), self.port, "the machine has no such address")
        server.start()
        self._server = server

    def stop(self, grace_seconds: float = 0.0) -> None:
        """Stops listening; calls that are answered within `grace_seconds` are completed."""
        if self._server is not None:
            self._server.stop(grace_seconds).wait()
            self._server = None

    def _exchange(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        if not self._peers.accepts(context.peer(), self.port):
            return self._refuse_stranger(context.peer())
        if len(request) > self._max_message_bytes:
            import structlog  # noqa: PLC0415 - the ports open before it is loaded; a test holds on to that

            structlog.get_logger().error(
                "player_message_too_large",
                worker=self.worker,
                size_bytes=len(request),
                limit_bytes=self._max_message_bytes,
                next="raise --max-player-message-bytes, or send smaller observations",
            )
            return FAREWELL
        return self._conversation.exchange(request, context.peer())

    def _refuse_stranger(self, peer: str) -> bytes:
        """Answers a process of another user, which is not the player; the player keeps its seat."""
        if not self._has_warned:
            import structlog  # noqa: PLC0415 - as above

            self._has_warned = True
            structlog.get_logger().warning(
                "stranger_refused",
                worker=self.worker,
                peer=peer[:64],
                why="its process belongs to another user, and the player was started by this one",
                answer="400",
            )
        return FAREWELL

    def _bind(self, server: grpc.Server, host: str) -> bool:
        """Binds one address; returns False if the machine lacks this address of `LOOPBACK`.

        Raises:
            ActorError: The address cannot be bound.
        """
        address = join_address(host, self.port)
        fault = fault_of(host, self.port)
        if fault is None:
            try:
                self.port = server.add_insecure_port(address)
                return True
            except RuntimeError as error:
                fault = OSError(0, str(error))
        if is_absent(host, fault):
            return False
        raise refused(host, self.port, fault.strerror or str(fault))


@contextmanager
def listening(ports: Ports) -> Iterator[Sequence[PlayerListener]]:
    """Listens for players within the block; yields one door per player.

    Raises:
        ActorError: A port is in use, or an address is not one of this machine (PORT_IN_USE).
    """
    # The editor is not started here, and may belong to anyone.
    owner = None if ports.is_editor else own_user()
    doors = tuple(PlayerListener() for _ in range(ports.players))
    servers = [
        PlayerServer(worker, ports.hosts, ports.first + worker, door, ports.max_message_bytes, owner=owner)
        for worker, door in enumerate(doors)
    ]
    try:
        for server in servers:
            server.start()
        yield doors
    finally:
        for door in doors:
            door.close()
        for server in servers:
            server.stop(_FAREWELL_SECONDS)
