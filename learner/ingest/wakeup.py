"""How one thread wakes another that waits on a file descriptor: the trainer's thread wakes the service's event loop."""

from __future__ import annotations

import select
import socket
import threading


class Wakeup:
    """A flag that can be waited for like a socket.

    Setting it twice before it is cleared is the same as setting it once, so a fast setter cannot fill the socket.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._receiver.setblocking(False)
        self._sender.setblocking(False)
        self._lock = threading.Lock()
        self._is_set = False
        self._closed = False

    def fileno(self) -> int:
        """Returns the descriptor that is readable while the flag is set; for `loop.add_reader` and `select`."""
        return self._receiver.fileno()

    def set(self) -> None:
        """Sets the flag; from any thread, and harmless after `close`."""
        with self._lock:
            if self._is_set or self._closed:
                return
            self._is_set = True
            self._sender.send(b"\0")

    def clear(self) -> None:
        """Clears the flag. Whoever waits clears first and looks at the state afterwards, so that nothing is missed."""
        with self._lock:
            if self._is_set and not self._closed:
                self._receiver.recv(1)
            self._is_set = False

    def wait(self, timeout_seconds: float) -> bool:
        """Waits until the flag is set, without clearing it; says whether it is."""
        if self._closed:
            return self._is_set
        poll = select.poll()  # not select(): that fails for descriptors over 1023
        poll.register(self._receiver, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_seconds) * 1000))

    def close(self) -> None:
        """Frees both sockets."""
        with self._lock:
            self._closed = True
            self._receiver.close()
            self._sender.close()
