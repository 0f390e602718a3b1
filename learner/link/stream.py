"""Carries the messages of the link over a socket: of this machine, or of TCP in plain text or with TLS."""

from __future__ import annotations

import socket
import ssl
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any, Final

from learner.link.entrance import shut

_LENGTH: Final = struct.Struct(">I")
_TAKE_BYTES: Final = 2**18
_JOINED_BYTES: Final = 2**16
"""A message of at most so many bytes is copied behind its length."""
_SILENT_SECONDS: Final = 30
"""After so long without an answer of its machine, the other side counts as gone."""
_PROBE_SECONDS: Final = 5


class StreamConnection:
    """A connection for a `learner.link.wire.Wire`; like one of multiprocessing, it carries whole messages.

    One thread may send while another one receives.

    Args:
        handle: The connected socket; this object closes it.
        context: How to use TLS; None for plain text.
        server_hostname: Name that the server's certificate must have; None on the server's side.
    """

    def __init__(
        self, handle: socket.socket, context: ssl.SSLContext | None = None, server_hostname: str | None = None
    ) -> None:
        self._socket = handle
        self._received = bytearray()
        self._space = memoryview(bytearray(_TAKE_BYTES))
        self._lock = threading.Lock()
        self._arrived, self._leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = None
        if context is not None:
            # An object of OpenSSL is for one thread at a time, so the lock is held while it works and not while a socket waits.
            self._tls = context.wrap_bio(
                self._arrived, self._leaving, server_side=server_hostname is None, server_hostname=server_hostname
            )
        if handle.family in {socket.AF_INET, socket.AF_INET6}:
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _end_if_silent(handle)

    def handshake(self) -> None:
        """Makes the TLS handshake; does nothing in plain text.

        Raises:
            ssl.SSLError, EOFError, OSError: It failed.
        """
        if self._tls is None:
            return
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_what_leaves()
                self._take()
            except ssl.SSLError:
                self._send_what_leaves()  # the alert that says why
                raise
            else:
                self._send_what_leaves()
                return

    @property
    def certificate_names(self) -> tuple[str, ...]:
        """URIs in the other side's certificate; empty without one."""
        found = None if self._tls is None else self._tls.getpeercert()
        names: Sequence[Any] = () if not found else found.get("subjectAltName", ())
        return tuple(str(name[1]) for name in names if name[0] == "URI")

    def settimeout(self, seconds: float | None) -> None:
        """Sets how long the socket may wait; None for ever."""
        self._socket.settimeout(seconds)

    def send_bytes(self, message: bytes | bytearray | memoryview) -> None:
        """Sends a message; waits while the other side does not take it.

        Raises:
            OSError: The connection is broken.
        """
        length = _LENGTH.pack(len(message))
        if self._tls is None:
            if len(message) <= _JOINED_BYTES:  # one call, and one wake of the receiver
                self._socket.sendall(length + message)
                return
            self._socket.sendall(length)
            self._socket.sendall(message)
            return
        with self._lock:
            for part in (memoryview(length), memoryview(message)):
                sent = 0
                while sent < len(part):
                    sent += self._tls.write(part[sent:])
            data = self._leaving.read()
        self._socket.sendall(data)

    def recv_bytes(self, maxlength: int) -> bytes:
        """Waits for a message and returns it.

        Args:
            maxlength: Most bytes that it may have.

        Raises:
            EOFError: The other side has closed the connection.
            OSError: The connection is broken, or the message is longer.
        """
        (length,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if length > maxlength:
            raise OSError(f"a message of {length} bytes; at most {maxlength} are allowed")
        return self._read(length)

    def fileno(self) -> int:
        """Returns the descriptor of the socket."""
        return self._socket.fileno()

    def has_news(self) -> bool:
        """Returns whether bytes wait to be received, or the connection has ended; nothing else may use it meanwhile."""
        seconds = self._socket.gettimeout()
        self._socket.settimeout(0.0)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass
        finally:
            self._socket.settimeout(seconds)
        return True

    def shut(self) -> None:
        """Ends the connection for both sides, and with it what another thread waits for; it remains to be closed."""
        shut(self._socket)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _read(self, size: int) -> bytes:
        while len(self._received) < size:
            self._receive()
        with memoryview(self._received) as view:
            found = bytes(view[:size])
        del self._received[:size]
        return found

    def _receive(self) -> None:
        """Waits for some bytes of the stream."""
        if self._tls is None:
            self._received += self._some()
            return
        with self._lock:
            while True:
                try:
                    part = self._tls.read(_TAKE_BYTES)
                except ssl.SSLWantReadError:
                    break
                except ssl.SSLZeroReturnError:
                    raise EOFError from None
                if not part:
                    raise EOFError
                self._received += part
                return
        self._take()

    def _take(self) -> None:
        data = self._some()
        with self._lock:
            self._arrived.write(data)

    def _some(self) -> memoryview:
        count = self._socket.recv_into(self._space)
        if not count:
            raise EOFError
        return self._space[:count]

    def _send_what_leaves(self) -> None:
        with self._lock:
            data = self._leaving.read()
        self._socket.sendall(data)


def _end_if_silent(handle: socket.socket) -> None:
    """Breaks a connection whose other machine is gone, which nothing else would notice while nothing is sent."""
    handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        for option, value in (
            (socket.TCP_KEEPIDLE, _PROBE_SECONDS),
            (socket.TCP_KEEPINTVL, _PROBE_SECONDS),
            (socket.TCP_KEEPCNT, _SILENT_SECONDS // _PROBE_SECONDS - 1),
            (socket.TCP_USER_TIMEOUT, 1000 * _SILENT_SECONDS),
        ):
            handle.setsockopt(socket.IPPROTO_TCP, option, value)
