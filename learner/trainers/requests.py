"""Work that other threads hand to the trainer thread, to be done between two turns."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class RequestsClosedError(RuntimeError):
    """The trainer thread has ended and answers no more."""


class RequestQueue:
    """A queue of calls with results. Any thread may `submit`; one thread runs them with `run_pending`.

    Args:
        wake: called after each submission, so that the running thread stops waiting.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._closed = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Asks for a call; the future holds its result, or what it raised."""
        future: Future[T] = Future()
        self._calls.put((call, future))
        if self._closed:
            self._refuse_pending()
        self._wake()
        return future

    def run_pending(self) -> bool:
        """Runs what was asked for so far; returns whether there was anything."""
        is_busy = False
        while not self._calls.empty():
            call, future = self._calls.get()
            is_busy = True
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except Exception as error:  # noqa: BLE001 - it belongs to whoever asked
                future.set_exception(error)
        return is_busy

    def close(self) -> None:
        """Answers everything that waits, and everything to come, with `RequestsClosedError`."""
        self._closed = True
        self._refuse_pending()

    def _refuse_pending(self) -> None:
        while True:
            try:
                _, future = self._calls.get_nowait()
            except queue.Empty:
                return
            if future.set_running_or_notify_cancel():
                future.set_exception(RequestsClosedError("the trainer thread has ended"))
