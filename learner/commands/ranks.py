"""Starts several processes of trainers with torchrun: ``python -m learner.commands.ranks N``, for `learner.commands.trainer_start`."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from typing import Final

from rollcast.parents import die_with_parent
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

from learner.common.exits import ExitCode
from learner.common.platform import block_stop_signals

PROGRAM: Final = "learner.commands.trainer"
LOOPBACK: Final = {"linux": "lo", "darwin": "lo0"}


def main(arguments: Sequence[str]) -> int:
    """Runs torchrun until all ranks have ended, and returns the exit code.

    Args:
        arguments: Number of ranks.
    """
    die_with_parent()
    block_stop_signals(blocked=True)  # one to the whole group must not end torchrun before the service has saved
    (ranks,) = arguments
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # torchrun warns without it; each rank sets its threads later
    if sys.platform in LOOPBACK:
        os.environ["GLOO_SOCKET_IFNAME"] = LOOPBACK[sys.platform]  # all are on this machine
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)  # the service says what has ended
    try:
        # By default it leaves a folder for logs behind.
        here = ["--standalone", "--local-addr", "127.0.0.1"]  # the name of this machine need not resolve
        torchrun([*here, "--nproc-per-node", ranks, "--log-dir", os.devnull, "--module", PROGRAM])
    except ChildFailedError:  # the service knows more than its traceback would say
        return ExitCode.TRAINER_FAILED
    return ExitCode.OK


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
