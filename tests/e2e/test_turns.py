"""Tests that steps do not become stale when actors and learner take turns."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.books import by_reason, check_books
from tests.e2e.processes import Processes
from tests.e2e.runs import small, write_run

UPDATES = 12


@pytest.mark.parametrize("max_policy_lag", [4, 1])
def test_far_more_agents_and_steps_than_a_buffer_go_stale_nowhere(
    processes: Processes, tmp_path: Path, max_policy_lag: int
) -> None:
    """No step becomes stale when 64 environments end together after 12,800 steps."""
    run_file = write_run(tmp_path, {"Pendulum": small(time_horizon=1000)}, max_policy_lag=max_policy_lag)
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "Pendulum-v1", "--num-envs", "64")
    learner.wait_for_version("Pendulum", UPDATES, actor)
    status = learner.status()
    check_books(status)
    books = status.behaviors[0].books
    assert by_reason(books.dropped) == {}
    assert books.trained >= UPDATES * 256
