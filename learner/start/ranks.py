"""Starts several processes of trainers: ``python -m learner.start.ranks N``, for `learner.start.trainer_start`.

They find each other through the service, so that nothing listens for them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Final

from rollcast.signals import die_with_parent

from learner.shared.exits import ExitCode
from learner.shared.platform import block_stop_signals

PROGRAM: Final = "learner.start.trainer"


def main(arguments: Sequence[str]) -> int:
    """Runs the ranks until all have ended, the others soon after the first that fails, and returns the exit code.

    Args:
        arguments: Number of ranks.
    """
    die_with_parent()
    block_stop_signals(blocked=True)  # one to the whole group must not end this before the service has saved
    (ranks,) = arguments
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # until a rank sets its threads
    processes = [
        subprocess.Popen(  # noqa: S603 - this program
            [sys.executable, "-m", PROGRAM], env={**os.environ, "RANK": str(rank), "WORLD_SIZE": ranks}
        )
        for rank in range(int(ranks))
    ]
    watches = [threading.Thread(target=_watch, args=(process, processes)) for process in processes]
    for watch in watches:
        watch.start()
    for watch in watches:
        watch.join()
    return ExitCode.TRAINER_FAILED if any(process.returncode for process in processes) else ExitCode.OK


def _watch(process: subprocess.Popen[bytes], processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Waits for a rank, and ends the others if it fails: they would wait for it."""
    if process.wait():
        for each in processes:
            each.terminate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
