"""An answer that all who ask at about the same time share: many readers cost the learner what one does."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

FRESH_SECONDS: Final = 0.5
"""So long an answer is good for everybody who asks."""


class SharedAnswer:
    """Makes an answer where there is no fresh one, one at a time. Belongs to one event loop.

    Args:
        make: returns the answer; called in a thread of the executor.
        executor: not the loop's own, in which the learner has work of its own.
        clock: monotonic seconds.
    """

    def __init__(
        self, make: Callable[[], bytes], executor: Executor, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._make = make
        self._executor = executor
        self._clock = clock
        self._making = asyncio.Lock()
        self._answer = b""
        self._fresh_until = -math.inf

    async def get(self) -> bytes:
        """Returns the answer, which is at most `FRESH_SECONDS` old."""
        async with self._making:
            if self._clock() >= self._fresh_until:
                self._answer = await asyncio.get_running_loop().run_in_executor(self._executor, self._make)
                self._fresh_until = self._clock() + FRESH_SECONDS
        return self._answer

    def expire(self) -> None:
        """Lets whoever asks next have a new one."""
        self._fresh_until = -math.inf
