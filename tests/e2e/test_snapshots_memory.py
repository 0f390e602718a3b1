"""Tests that memory and disk do not grow with the snapshots of self-play."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.e2e.processes import Child, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.unity import Gateway

pytestmark = pytest.mark.nightly

SNAPSHOTS = 200
WARM_UP = 60
"""Snapshots before the first measurement: pool, caches of policies and allocators fill."""
WINDOW = 8
BATCH = 64
MAX_GROWTH = 0.5
"""Growth per snapshot as a share of a policy's size. A process that keeps one policy per snapshot exceeds 1. Over 700
snapshots the growth is 0.01 for the learner and -0.02 for the gateway, whose allocator returns memory late."""


def resident_bytes(child: Child) -> int:
    """Returns the resident memory of a running process."""
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{child.pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


def test_memory_and_disk_are_flat_over_200_snapshots(processes: Processes) -> None:
    """Learner and gateway keep no policies, and files are those of the pool, the match and two run states."""
    steps = {"save_steps": BATCH, "team_change": 10 * BATCH, "swap_steps": BATCH}
    settings = small(
        self_play={**steps, "window": WINDOW, "play_against_latest_model_ratio": 0.2},
        hyperparameters={"batch_size": BATCH, "buffer_size": BATCH, "num_epoch": 1},
        network_settings={"hidden_units": 512, "num_layers": 2},
        time_horizon=16,
    )
    learner = processes.learner(write_run(processes.folder, {"Duel": settings}, checkpoint_seconds=1.0))
    players = ("--task", "duel", "--agents", "4")
    gateway = Gateway(processes, learner.address, play=players).child
    files = learner.folder / "Duel" / "snapshots"
    seen: list[tuple[int, int, int]] = []
    sizes: list[int] = []
    most_files = 0

    def measured() -> int:
        nonlocal most_files
        version = learner.behavior("Duel").version
        seen.append((version, resident_bytes(learner), resident_bytes(gateway)))
        names = list(files.glob("*.onnx"))
        most_files = max(most_files, len(names))
        sizes[:] = sizes or [name.stat().st_size for name in names[-1:]]
        return version

    for version in range(0, SNAPSHOTS + 1, SNAPSHOTS // 4):  # each has the time of one wait
        learner.wait_for(lambda: measured() > version, f"{version} snapshots", gateway)  # noqa: B023
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    state = torch.load(learner.folder / "run_state.pt", weights_only=True)
    assert state["extra"]["self_play"]["leagues"]["Duel"]["pool"]["saved"] >= SNAPSHOTS
    assert WINDOW <= most_files <= 3 * (WINDOW + 1) + 1  # pool and match, as now and in two run states; one is written
    late = np.array([row for row in seen if row[0] >= WARM_UP], np.float64)
    growth = [np.polyfit(late[:, 0], late[:, column], 1)[0] / sizes[0] for column in (1, 2)]
    assert max(growth) < MAX_GROWTH, f"growth per snapshot of learner and gateway in policies: {growth}"
