"""Running several coroutines of which the first to end, ends all."""

import asyncio
from collections.abc import Coroutine


async def first_of(*coroutines: Coroutine[object, object, None]) -> None:
    """Runs coroutines until one returns or raises; the others are cancelled and awaited.

    Raises:
        BaseException: What the first one raised.
    """
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in tasks:
        if task in done:
            task.result()
