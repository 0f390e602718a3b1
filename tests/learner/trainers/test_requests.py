"""Work handed to the trainer thread."""

from __future__ import annotations

import threading

import pytest

from learner.trainers.requests import RequestQueue, RequestsClosedError


def test_calls_run_in_the_thread_that_runs_them() -> None:
    """A call asked for elsewhere runs where the queue is run, and its result goes back."""
    woken = threading.Event()
    queue = RequestQueue(woken.set)
    futures = []
    asking = threading.Thread(target=lambda: futures.append(queue.submit(threading.get_ident)))
    asking.start()
    asking.join()
    assert woken.is_set()
    assert queue.run_pending()
    assert futures[0].result(timeout=0) == threading.get_ident()
    assert not queue.run_pending()


def test_an_error_goes_to_whoever_asked() -> None:
    """What a call raises is raised by its future, and the next call runs all the same."""
    queue = RequestQueue(lambda: None)
    failed, fine = queue.submit(lambda: 1 // 0), queue.submit(lambda: 5)
    queue.run_pending()
    with pytest.raises(ZeroDivisionError):
        failed.result(timeout=0)
    assert fine.result(timeout=0) == 5


def test_a_cancelled_call_does_not_run() -> None:
    """Whoever gave up waiting causes no work."""
    queue = RequestQueue(lambda: None)
    ran: list[int] = []
    queue.submit(lambda: ran.append(1)).cancel()
    queue.run_pending()
    assert ran == []


def test_a_closed_queue_answers_at_once() -> None:
    """Nobody waits for ever: what was asked for before the end, and after it, is refused."""
    queue = RequestQueue(lambda: None)
    before = queue.submit(lambda: 1)
    queue.close()
    after = queue.submit(lambda: 1)
    for future in (before, after):
        with pytest.raises(RequestsClosedError):
            future.result(timeout=0)
