"""Tests waits of the main thread, which signals reach."""

from __future__ import annotations

import queue
import signal
import threading

from rollcast.signals import handling, take, until


def _elsewhere() -> None:
    """Raises a signal in this thread, so that the main thread is not woken."""
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)


def test_a_signal_that_does_not_wake_the_main_thread_is_handled() -> None:
    """A signal may come just as the main thread begins to wait: it is handled although nothing ends the wait."""
    ended, items = threading.Event(), queue.SimpleQueue[int]()
    with handling(lambda *_: ended.set()):
        threading.Timer(1.0, _elsewhere).start()
        until(ended.wait)
    with handling(lambda *_: items.put(7)):
        threading.Timer(1.0, _elsewhere).start()
        assert take(items) == 7
