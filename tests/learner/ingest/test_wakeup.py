"""The flag that wakes an event loop or a waiting thread."""

from __future__ import annotations

import asyncio
import os
import threading

import pytest

from learner.ingest.wakeup import Wakeup


@pytest.fixture
def wakeup() -> Wakeup:
    """A fresh wakeup."""
    return Wakeup()


def test_set_is_seen_until_it_is_cleared(wakeup: Wakeup) -> None:
    """Waiting does not clear the flag; clearing does, and may be done twice."""
    assert not wakeup.wait(0)
    wakeup.set()
    assert wakeup.wait(0)
    assert wakeup.wait(0)
    wakeup.clear()
    wakeup.clear()
    assert not wakeup.wait(0)


def test_setting_often_does_not_fill_the_pipe(wakeup: Wakeup) -> None:
    """However often the flag is set, one clear clears it."""
    for _ in range(200_000):
        wakeup.set()
    wakeup.clear()
    assert not wakeup.wait(0)


def test_another_thread_wakes_a_waiter(wakeup: Wakeup) -> None:
    """A thread that waits is woken by a set from another thread."""
    woken: list[bool] = []
    waiter = threading.Thread(target=lambda: woken.append(wakeup.wait(30)))
    waiter.start()
    wakeup.set()
    waiter.join()
    assert woken == [True]


def test_an_event_loop_is_woken_for_every_set_after_a_clear(wakeup: Wakeup) -> None:
    """A loop that clears first and then looks misses nothing that a thread counted up."""
    count = 0
    seen: list[int] = []

    async def scenario() -> None:
        done = asyncio.Event()

        def look() -> None:
            wakeup.clear()
            seen.append(count)
            if count == 2000:
                done.set()

        def work() -> None:
            nonlocal count
            for _ in range(2000):
                count += 1
                wakeup.set()

        asyncio.get_running_loop().add_reader(wakeup.fileno(), look)
        worker = threading.Thread(target=work)
        worker.start()
        async with asyncio.timeout(30):
            await done.wait()
        worker.join()
        asyncio.get_running_loop().remove_reader(wakeup.fileno())

    asyncio.run(scenario())
    assert seen[-1] == 2000


def test_after_closing_nothing_happens() -> None:
    """Setting and clearing a closed wakeup is harmless: threads may outlive the service."""
    wakeup = Wakeup()
    wakeup.close()
    wakeup.set()
    wakeup.clear()
    assert not wakeup.wait(0)


def test_descriptors_go_with_the_object() -> None:
    """A wakeup that nobody closed leaves no descriptors behind."""
    wakeup = Wakeup()
    descriptor = wakeup.fileno()
    os.fstat(descriptor)
    del wakeup
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
