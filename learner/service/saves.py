"""Checkpoints that operators ask for: however many ask at once, one is written and one more waits for its turn."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor


class SaveDesk:
    """Joins requests for a checkpoint. For the event loop alone.

    Whoever asks while one is being written may want what happened since, so it waits for the next one, together with
    all others who ask by then.

    Args:
        save: writes a checkpoint and returns its path; takes the most seconds it may need, and blocks.
        executor: where it runs.
        least_seconds: a checkpoint may take at least so long, whoever asked for it: others may have joined.
    """

    def __init__(self, save: Callable[[float], str], executor: Executor, least_seconds: float) -> None:
        self._save = save
        self._executor = executor
        self._least_seconds = least_seconds
        self._running: asyncio.Task[str] | None = None
        self._waiting: asyncio.Task[str] | None = None

    async def save(self, seconds: float) -> str:
        """Returns the path of a checkpoint that was begun after this call.

        Raises:
            TimeoutError: it was not on disk in time; it may still be written.
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
    """Looks at how a checkpoint ended, for everyone who asked for it may be gone."""
    if not task.cancelled():
        task.exception()
