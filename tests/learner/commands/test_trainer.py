"""Tests of the trainers' process that its service has left."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from learner.commands.trainer_start import PROGRAM
from learner.common.exits import ExitCode
from learner.link.door import Door


@pytest.mark.parametrize("rank", [None, "0"])
def test_a_process_whose_service_has_ended_says_nothing(rank: str | None) -> None:
    """The service may end on a fault of the run file before the process dials; only the service reports it."""
    door = Door(inherits_ring=rank is None)
    ranks = {} if rank is None else {"RANK": rank, "WORLD_SIZE": "2"}
    environment = {**os.environ, **door.environment(), **ranks}
    door.close()
    done = subprocess.run(
        [sys.executable, *PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.TRAINER_FAILED, "", "")
