"""Runs one of the two programs in this process, with cProfile around the thread that matters.

`python -m tests.tools.bench.profiled learner OUT ARGUMENT...` profiles the trainers' thread, `actor` the stepping thread.
"""

import cProfile
import sys
import threading
from collections.abc import Callable
from pathlib import Path

TRAINER_THREAD = "trainers"
"""The name that `learner.app` gives to it."""


def run_learner(arguments: list[str], out: Path) -> int:
    """Runs `rollcast-learner` and leaves the profile of its trainers' thread."""
    from learner.cli import main

    original: Callable[[threading.Thread], None] = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name != TRAINER_THREAD:
            original(thread)
            return
        profile = cProfile.Profile()
        try:
            profile.runcall(original, thread)
        finally:
            profile.dump_stats(out)

    threading.Thread.run = run  # type: ignore[assignment, method-assign]
    return main(arguments)


def run_actor(arguments: list[str], out: Path) -> int:
    """Runs `rollcast-actor` and leaves the profile of its main thread, which steps."""
    from actor_client.cli import main

    profile = cProfile.Profile()
    try:
        return profile.runcall(main, arguments)
    finally:
        profile.dump_stats(out)


if __name__ == "__main__":
    program, path, *rest = sys.argv[1:]
    sys.exit({"learner": run_learner, "actor": run_actor}[program](rest, Path(path)))
