"""The ports of games: each accepts one connection, whose messages are a length of four bytes and JSON. Nothing blocks."""

import selectors
import socket
from typing import Final

import structlog
from rollcast.addresses import reuse_address

from actor_client.exits import ActorError, ExitCode
from actor_client.godot.messages import CLOSE, ENV_INFO, HANDSHAKE
from actor_client.platform import own_user, users_of_connection

HOST: Final = "127.0.0.1"
"""The address to which the plug-in connects; it knows no other."""
MAX_MESSAGE_BYTES: Final = 64 << 20
"""Largest message of a game: 64 agents that each see four pictures of 256 x 256 pixels."""
_HEADER_BYTES: Final = 4
_READ_BYTES: Final = 1 << 20

_log = structlog.get_logger(__name__)


class Ports:
    """Waits for the messages of all games of a process."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def open(self, number: int | None) -> "Port":
        """Returns a new port for one game.

        Args:
            number: Its number; None lets the system choose a free one.

        Raises:
            ActorError: It cannot be opened (PORT_IN_USE).
        """
        return Port(self._selector, number or 0)

    def wait(self, seconds: float) -> None:
        """Waits until a game connects, sends something or leaves, or until the time is over; takes what has come."""
        for key, events in self._selector.select(seconds):
            key.data.handle(events)

    def close(self) -> None:
        """Closes the selector, after all ports."""
        self._selector.close()


class Port:
    """The port of one game. It greets whoever connects, and exchanges one message at a time.

    Args:
        selector: Reports events of this port, with this object.
        number: Its number; 0 for any free one.

    Raises:
        ActorError: It cannot be opened (PORT_IN_USE).

    Attributes:
        number: Its number.
        is_connected: A game has connected and has not left.
        message: The game's answer; None until it is whole.
        fault: Why the connection has ended, in words that follow "the game "; empty while it has not.
    """

    def __init__(self, selector: selectors.BaseSelector, number: int) -> None:
        self._selector = selector
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            reuse_address(self._listener)
            self._listener.bind((HOST, number))
            self._listener.listen(1)
        except OSError as error:
            self._listener.close()
            why = (error.strerror or str(error)).lower()
            raise ActorError(
                ExitCode.PORT_IN_USE,
                f"port {number} for a game cannot be opened on {HOST} ({why}): end the process that listens there (an older "
                "run, or gdrl), or choose another one with --base-port",
            ) from None
        self._listener.setblocking(False)
        self.number = int(self._listener.getsockname()[1])
        self._connection: socket.socket | None = None
        self._forget()
        selector.register(self._listener, selectors.EVENT_READ, self)

    def _forget(self) -> None:
        self.message: bytes | None = None
        self.fault = ""
        self._owes = False
        self._length: int | None = None
        self._received = bytearray()
        self._outgoing = bytearray()

    @property
    def is_connected(self) -> bool:
        """True if a game has connected and has not left."""
        return self._connection is not None

    def handle(self, events: int) -> None:
        """Takes what the selector reports."""
        if self._connection is None:
            self._accept()
            return
        if events & selectors.EVENT_WRITE:
            self._write(self._connection)
        if events & selectors.EVENT_READ and self._connection is not None:
            self._read(self._connection)

    def ask(self, body: bytes) -> None:
        """Sends a message that the game answers; `message` is then its answer."""
        self.message, self._owes = None, True
        self._send(body)

    def take(self) -> bytes:
        """Returns the game's answer, once it is whole."""
        message, self.message = self.message, None
        return message or b""

    def dismiss(self) -> None:
        """Tells the game to end; it reads this when it next waits for a message."""
        self._send(CLOSE)

    def hang_up(self) -> None:
        """Ends the connection, and accepts the next one."""
        self._drop()
        self._forget()
        if self._listener.fileno() not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ, self)

    def close(self) -> None:
        """Closes the connection and the port; more than once has no effect."""
        self._drop()
        if (number := self._listener.fileno()) >= 0 and number in self._selector.get_map():
            self._selector.unregister(self._listener)
        self._listener.close()

    def _accept(self) -> None:
        try:
            connection, (_, port) = self._listener.accept()
        except OSError:  # it has left since
            return
        if not self._is_own(port):
            connection.close()
            _log.warning("game_of_another_user", port=self.number, consequence="its connection was closed")
            return
        self._selector.unregister(self._listener)
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._forget()
        self._connection = connection
        self._selector.register(connection, selectors.EVENT_READ, self)
        self._send(HANDSHAKE)
        self.ask(ENV_INFO)

    def _is_own(self, port: int) -> bool:
        """Returns whether a client is a process of this user: any process of the machine can connect to a port on loopback."""
        owner = own_user()
        users = None if owner is None else users_of_connection(port, self.number)
        return users is None or users == {owner}

    def _send(self, body: bytes) -> None:
        if self._connection is not None:
            self._outgoing += len(body).to_bytes(_HEADER_BYTES, "little") + body
            self._write(self._connection)

    def _write(self, connection: socket.socket) -> None:
        try:
            sent = connection.send(self._outgoing) if self._outgoing else 0
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._leave(f"lost the connection ({(error.strerror or str(error)).lower()})")
            return
        del self._outgoing[:sent]
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._outgoing else 0)
        if self._selector.get_key(connection).events != wanted:
            self._selector.modify(connection, wanted, self)

    def _read(self, connection: socket.socket) -> None:
        """Reads until the answer is whole, or nothing has come."""
        while self.message is None and not self.fault:
            missing = (_HEADER_BYTES if self._length is None else self._length) - len(self._received)
            try:
                data = connection.recv(min(missing, _READ_BYTES))
            except BlockingIOError:
                return
            except OSError as error:
                self._leave(f"lost the connection ({(error.strerror or str(error)).lower()})")
                return
            if not data:
                self._leave("closed the connection")
                return
            if not self._owes:
                self._leave("sent a message that was not asked for")
                return
            self._received += data
            if len(data) == missing:
                self._complete()

    def _complete(self) -> None:
        """Takes a whole length or a whole message."""
        received, self._received = self._received, bytearray()
        if self._length is not None:
            self._length, self._owes, self.message = None, False, bytes(received)
            return
        self._length = int.from_bytes(received, "little")
        if not 0 < self._length <= MAX_MESSAGE_BYTES:
            self._leave(f"sent a message of {self._length} bytes, and 1 to {MAX_MESSAGE_BYTES} are allowed")

    def _leave(self, why: str) -> None:
        """Ends the connection; `hang_up` accepts the next one."""
        self._drop()
        self.fault = why

    def _drop(self) -> None:
        if self._connection is not None:
            self._selector.unregister(self._connection)
            self._connection.close()
            self._connection = None
