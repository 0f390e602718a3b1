"""Tests training on a full disk, by the kernel's limit on file sizes."""

from __future__ import annotations

import json
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from learner.shared.exits import ExitCode
from tests.e2e.processes import TRACEBACK, LearnerProcess, Processes, processes_in
from tests.e2e.runs import small, write_run

pytestmark = pytest.mark.slow

NAME = "CartPole"
LARGE = small(network_settings={"hidden_units": 256, "num_layers": 2}, checkpoint_interval=1000)
ROOM_BYTES = 250_000
"""Checkpoints of that network are larger; log lines and statistics of a test are not."""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


def limit(learner: LearnerProcess, size_bytes: int) -> None:
    """Limits the size of the files of a learner and its trainers."""
    for pid in (learner.pid, *learner.trainers):
        _, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size_bytes, hard))


def test_a_full_disk_costs_checkpoints_and_never_the_run(processes: Processes) -> None:
    """Training continues on a full disk with one warning; an incomplete end has an exit code."""
    learner = processes.learner(write_run(processes.folder, {NAME: LARGE}, checkpoint_seconds=0.5))
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2")
    state = learner.folder / "run_state.pt"
    learner.wait_for(state.exists, "a first checkpoint", actor)

    limit(learner, ROOM_BYTES)
    learner.wait_for(lambda: learner.status().last_error, "a checkpoint fails", actor)
    assert "File too large" in learner.status().last_error
    full_at, version = state.stat().st_mtime_ns, learner.behavior(NAME).version
    learner.wait_for_version(NAME, version + 8, actor)
    assert state.stat().st_mtime_ns == full_at, "the last good one stays"
    assert len(learner.events("checkpoint_failed")) == 1

    limit(learner, resource.RLIM_INFINITY)
    learner.wait_for(lambda: state.stat().st_mtime_ns > full_at, "it is saved once there is room", actor)

    limit(learner, ROOM_BYTES)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == ExitCode.NOT_SAVED, learner.said()
    assert TRACEBACK not in learner.err() + learner.out(), learner.said()
    assert all(line.startswith("{") for line in learner.err().splitlines()), learner.said()
    assert json.loads((learner.folder / "summary.json").read_text())["stop_reason"] == "signal"


def test_a_log_on_a_full_disk_changes_no_exit_code(processes: Processes) -> None:
    """A run whose outputs cannot be written keeps its exit code."""
    learner = processes.learner(write_run(processes.folder, {NAME: small()}), "--max-wall-seconds", "3")
    assert learner.address
    limit(learner, 0)  # its files are at their ends already; the summary and the state have no room either
    assert learner.wait() == ExitCode.NOT_SAVED, learner.said()
