"""Tests a run on a small disk that is full."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.common.exits import ExitCode
from tests.e2e.processes import TRACEBACK, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.nightly.chaos.run import check_summary

NAME = "CartPole"
DISK_MIB = 4
LEARNS = small(checkpoint_interval=2000, keep_checkpoints=2)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test, with run folders on a small disk."""
    disk = tmp_path / "results"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tmpfs", str(disk)], check=True)
    try:
        with processes_in(tmp_path) as started:
            yield started
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)


def _fill(disk: Path) -> Path:
    """Takes all the room there is, to the last byte."""
    filler = disk / "filler"
    for block_bytes in (64 * 1024, 1):
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * block_bytes)
    return filler


def _saves(learner: LearnerProcess) -> int:
    return (learner.folder / "run_state.pt").stat().st_mtime_ns


def test_a_disk_that_is_full_for_a_while(processes: Processes) -> None:
    """Training continues without space, a restart fails with the reason, and with space all continues."""
    run_file = write_run(processes.folder, {NAME: LEARNS}, checkpoint_seconds=0.5)
    learner = processes.learner(run_file)
    port = int(learner.address.rpartition(":")[2])
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for((learner.folder / "run_state.pt").exists, "a first checkpoint", actor)

    filler = _fill(learner.folder.parent)
    learner.wait_for(lambda: learner.status().last_error, "a checkpoint fails", actor)
    assert "No space left" in learner.status().last_error
    saved = _saves(learner)
    learner.wait_for_version(NAME, learner.behavior(NAME).version + 20, actor)
    assert _saves(learner) == saved

    filler.unlink()
    learner.wait_for(lambda: _saves(learner) > saved, "it is saved once there is room", actor)
    _fill(learner.folder.parent)
    learner.kill()
    early = processes.learner(run_file, "--resume=auto", port=port)
    line = early.fails_with(ExitCode.RUN_FILE)
    assert "No space left on device" in line
    assert "make room" in line
    filler.unlink()

    again = processes.learner(run_file, "--resume=auto", port=port)
    again.wait_for_version(NAME, again.behavior(NAME).version + 5, actor)
    again.signal(signal.SIGTERM)
    assert again.wait() == ExitCode.OK, again.said()
    assert TRACEBACK not in learner.err() + again.err() + actor.err()
    check_summary(json.loads((again.folder / "summary.json").read_text()))
