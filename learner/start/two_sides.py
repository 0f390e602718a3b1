"""Connects the two sides of a learner: the service in the main thread's event loop, the trainers in another thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from learner.service.run.front import Front, Served
from learner.service.view.display import Display
from learner.shared.observe.address import BoundAddresses
from learner.training.run.run import Run


def play(front: Front, run: Run, announce: Callable[[BoundAddresses, str], None], display: Display) -> Served:
    """Runs a run from start to end, and returns how it ended.

    Args:
        front: Front that serves the run.
        run: The trainers and the parts.
        announce: Called with the learner's addresses and the link to the status page.
        display: Shows the run; closed at the end.

    Raises:
        UserError: An address is unavailable, or the trainers failed.
    """

    def begin(bound: BoundAddresses, page: str) -> None:
        announce(bound, page)
        run.start()

    try:
        return asyncio.run(front.run(run.context.lessons.assignment(), begin, display))
    except BaseException as error:
        run.give_up(error)
        raise
