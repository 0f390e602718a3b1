"""Answers that many share."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from learner.web.routes import FRESH_SECONDS, SharedAnswer


class Clock:
    """Stands still until it is moved."""

    now = 0.0

    def __call__(self) -> float:
        """Returns the time."""
        return self.now


def test_who_asks_meanwhile_shares_the_answer() -> None:
    """While an answer is made, and half a second after, all get the same one; then, or once it expired, a new one."""
    clock, made, go_on = Clock(), list[str](), threading.Event()

    def make() -> bytes:
        assert go_on.wait(20)
        made.append(threading.current_thread().name)
        return str(len(made)).encode()

    async def ask() -> None:
        with ThreadPoolExecutor(4, thread_name_prefix="own") as threads:
            shared = SharedAnswer(make, threads, clock)
            waiting = [asyncio.create_task(shared.get()) for _ in range(10)]
            await asyncio.sleep(0)
            go_on.set()
            assert set(await asyncio.gather(*waiting)) == {b"1"}
            clock.now += FRESH_SECONDS / 2
            assert await shared.get() == b"1"
            clock.now += FRESH_SECONDS
            assert await shared.get() == b"2"
            shared.expire()
            assert await shared.get() == b"3"

    asyncio.run(ask())
    assert all(name.startswith("own") for name in made)


def test_a_failure_is_not_kept() -> None:
    """Whoever asks after a failure has another try."""
    answers: Iterator[bytes | ValueError] = iter([ValueError("no"), b"yes"])

    def make() -> bytes:
        answer = next(answers)
        if isinstance(answer, bytes):
            return answer
        raise answer

    async def ask() -> None:
        with ThreadPoolExecutor(1) as threads:
            shared = SharedAnswer(make, threads)
            with pytest.raises(ValueError, match="no"):
                await shared.get()
            assert await shared.get() == b"yes"

    asyncio.run(ask())
