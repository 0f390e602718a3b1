"""Many actors in one process, with real sessions and streams and without environments."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from rollcast.v1 import session_pb2

from tests.learner.service.calls.harness import Actor
from tests.learner.service.calls.samples import NAME, make_spec

__all__ = ["NAME", "crowd_at"]

SECONDS = 60.0
RENEW_SECONDS = 1.0


@contextmanager
def crowd_at(address: str, size: int) -> Iterator[None]:
    """Connects actors to a learner within a block; they report growing books once a second."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    crowd = _Crowd(int(address.rpartition(":")[2]))
    try:
        asyncio.run_coroutine_threadsafe(crowd.come(size), loop).result(SECONDS)
        yield
    finally:
        asyncio.run_coroutine_threadsafe(crowd.go(), loop).result(SECONDS)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(SECONDS)
        loop.close()


class _Crowd:
    def __init__(self, port: int) -> None:
        self._port = port
        self._actors: list[Actor] = []
        self._reporting: asyncio.Task[None] | None = None

    async def come(self, size: int) -> None:
        for index in range(size):
            actor = Actor(self._port, f"worker-{index:03d}")
            self._actors.append(actor)
            await actor.join(spec=make_spec())
        self._reporting = asyncio.create_task(self._report())

    async def go(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.gather(self._reporting, return_exceptions=True)
        for actor in self._actors:
            await actor.channel.close()

    async def _report(self) -> None:
        rounds = 0
        while True:
            rounds += 1
            for index, actor in enumerate(self._actors):
                steps = rounds * (index + 1)
                books = session_pb2.ActorBooks(
                    behavior_index=0,
                    produced_steps=steps + 5,
                    open_steps=3,
                    unacked_steps=2,
                    acked_steps=steps,
                    agents=1,
                )
                report = session_pb2.PolicyReport(behavior_index=0, generation=1, version=0)
                await actor.renew(books=[books], policies=[report])
            await asyncio.sleep(RENEW_SECONDS)
