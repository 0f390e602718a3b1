"""Tests a run on a small disk that is full."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from tests.e2e.processes import TRACEBACK, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.nightly.chaos.resources import SmallDisk, small_disk
from tests.nightly.chaos.run import check_summary

NAME = "CartPole"
DISK_MIB = 4
LEARNS = small(checkpoint_interval=2000, keep_checkpoints=2)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Mounts a small disk where run folders are."""
    with small_disk(tmp_path / "results", DISK_MIB) as mounted:
        yield mounted


@pytest.fixture
def processes(disk: SmallDisk, tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test, before their disk does."""
    with processes_in(tmp_path) as started:
        yield started


def _saves(learner: LearnerProcess) -> int:
    return (learner.folder / "run_state.pt").stat().st_mtime_ns


def test_a_disk_that_is_full_for_a_while(processes: Processes, disk: SmallDisk) -> None:
    """Training continues without space, a restart fails with the reason, and with space all continues."""
    run_file = write_run(processes.folder, {NAME: LEARNS}, checkpoint_seconds=0.5)
    learner = processes.learner(run_file)
    port = int(learner.address.rpartition(":")[2])
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a first checkpoint", actor)

    disk.fill()
    learner.wait_for(lambda: learner.status().last_error, "a checkpoint fails", actor)
    assert "No space left" in learner.status().last_error
    saved = _saves(learner)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 20, actor)
    assert _saves(learner) == saved

    disk.free()
    learner.wait_for(lambda: _saves(learner) > saved, "it is saved once there is room", actor)
    disk.fill()
    learner.kill()
    early = processes.learner(run_file, "--resume=auto", port=port)
    line = early.fails_with(ExitCode.NOT_SAVED)
    assert "No space left on device" in line
    assert "make room" in line
    disk.free()

    again = processes.learner(run_file, "--resume=auto", port=port)
    again.wait_for_version(NAME, again.behavior(NAME).version + 5, actor)
    again.signal(signal.SIGTERM)
    assert again.wait() == ExitCode.OK, again.said()
    assert TRACEBACK not in learner.err() + again.err() + actor.err()
    check_summary(json.loads((again.folder / "summary.json").read_text()))
