"""How one thread wakes another that waits on a file descriptor: the trainer's thread wakes the service's event loop."""

from __future__ import annotations

import os
import select
import threading
import weakref


class Wakeup:
    """A flag that can be waited for like a socket.

    Setting it twice before it is cleared is the same as setting it once, so a fast setter cannot fill the pipe.
    """

    def __init__(self) -> None:
        self._receiver, self._sender = os.pipe()
        os.set_blocking(self._receiver, False)
        os.set_blocking(self._sender, False)
        self._lock = threading.Lock()
        self._is_set = False
        # Closes both ends with the object, if nobody does before.
        self._finalizer = weakref.finalize(self, _close, self._receiver, self._sender)

    def fileno(self) -> int:
        """Returns the descriptor that is readable while the flag is set; for `loop.add_reader` and `poll`."""
        return self._receiver

    def set(self) -> None:
        """Sets the flag; from any thread, and harmless after `close`."""
        with self._lock:
            if self._is_set or not self._finalizer.alive:
                return
            self._is_set = True
            os.write(self._sender, b"\0")

    def clear(self) -> None:
        """Clears the flag. Whoever waits clears first and looks at the state afterwards, so that nothing is missed."""
        with self._lock:
            if self._is_set and self._finalizer.alive:
                os.read(self._receiver, 1)
            self._is_set = False

    def wait(self, timeout_seconds: float) -> bool:
        """Waits until the flag is set, without clearing it; says whether it is."""
        if not self._finalizer.alive:
            return self._is_set
        poll = select.poll()  # not select(): that fails for descriptors over 1023
        poll.register(self._receiver, select.POLLIN)
        return bool(poll.poll(max(0.0, timeout_seconds) * 1000))

    def close(self) -> None:
        """Frees both ends."""
        with self._lock:
            self._finalizer()


def _close(receiver: int, sender: int) -> None:
    os.close(receiver)
    os.close(sender)
