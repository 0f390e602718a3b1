"""What torch needs so that the same numbers come to the same: for runs in lock-step."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final

import torch

from learner.common.exits import ExitCode, UserError

WORKSPACE_VARIABLE: Final = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES: Final = (":4096:8", ":16:8")
"""Sizes under which cuBLAS adds up in one order, as its manual says."""
RANKS_VARIABLE: Final = "WORLD_SIZE"


def make_deterministic(device: torch.device, environ: Mapping[str, str] = os.environ) -> None:
    """Lets torch take algorithms that repeat their results, and fail where it has none.

    Args:
        device: of the training.
        environ: the process's environment.

    Raises:
        UserError: several learners share the run, or cuBLAS is told to work otherwise.
    """
    ranks = environ.get(RANKS_VARIABLE, "1")
    if ranks != "1":
        raise UserError(
            ExitCode.RUN_FILE,
            f"rollcast.lockstep is for one learner, and {RANKS_VARIABLE} is {ranks}: start it without torchrun, or remove "
            "rollcast.lockstep",
        )
    if device.type == "cuda":
        given = environ.get(WORKSPACE_VARIABLE)
        if given is not None and given not in WORKSPACES:
            raise UserError(
                ExitCode.RUN_FILE,
                f"{WORKSPACE_VARIABLE} is {given!r}, under which CUDA's results differ from run to run: rollcast.lockstep "
                f"needs {WORKSPACES[0]}; unset it, or remove rollcast.lockstep",
            )
        if given is None:
            os.environ[WORKSPACE_VARIABLE] = WORKSPACES[0]  # read when cuBLAS is first used
        torch.backends.cudnn.benchmark = False
    torch.use_deterministic_algorithms(mode=True)
