"""Merges concurrent requests for a checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor


class SaveCoalescer:
    """Merges concurrent requests for a checkpoint. For the event loop alone.

    A request that arrives while a checkpoint is being written may want later changes, so it waits for the next
    checkpoint together with all other requests that have arrived.

    Args:
        save: Writes a checkpoint within the given seconds and returns its path; blocks.
        executor: Executor that runs `save`.
        least_seconds: Shortest time limit of a checkpoint, because later requests may join it.
    """

    def __init__(self, save: Callable[[float], str], executor: Executor, least_seconds: float) -> None:
        self._save = save
        self._executor = executor
        self._least_seconds = least_seconds
        self._running: asyncio.Task[str] | None = None
        self._waiting: asyncio.Task[str] | None = None

    async def save(self, seconds: float) -> str:
        """Returns the path of a checkpoint that began after this call.

        Raises:
            TimeoutError: The checkpoint was not on disk in time; it may still be written.
        """
        if self._waiting is None:
            self._waiting = asyncio.create_task(self._run(self._running, seconds))
            self._waiting.add_done_callback(_retrieve)
        async with asyncio.timeout(seconds):
            return await asyncio.shield(self._waiting)

    async def _run(self, before: asyncio.Task[str] | None, seconds: float) -> str:
        if before is not None:
            await asyncio.wait((before,))
        self._running, self._waiting = self._waiting, None
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, self._save, max(seconds, self._least_seconds))


def _retrieve(task: asyncio.Task[str]) -> None:
    """Retrieves a checkpoint's result, because all callers that requested it may be gone."""
    if not task.cancelled():
        task.exception()
