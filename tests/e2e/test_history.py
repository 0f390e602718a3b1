"""Tests the histories of chunks over a restart of the learner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rollcast.history import VARIABLE

from tests.e2e.processes import Processes, processes_in
from tests.e2e.runs import small, write_run
from tests.nightly.chaos.checker.check import check_folder
from tests.nightly.chaos.checker.reading import read
from tests.nightly.chaos.checker.violations import report

NAME = "CartPole"
REPLAY = {
    "batch_size": 32,
    "buffer_size": 2000,
    "buffer_init_steps": 64,
    "steps_per_update": 8,
    "learning_rate": 1.0e-3,
}


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    """Starts processes that end with the test."""
    with processes_in(tmp_path) as started:
        yield started


@pytest.mark.parametrize(
    ("settings", "trains"),
    [({}, "update_end"), ({"trainer_type": "sac", "hyperparameters": REPLAY}, "remembered")],
    ids=["ppo", "sac"],
)
def test_the_history_of_a_restart(processes: Processes, settings: dict[str, Any], trains: str) -> None:
    """Every chunk has its lines on both sides, over a kill of the learner, and they add up to the books."""
    folder = processes.folder / "histories"
    environment = {VARIABLE: str(folder)}
    run_file = write_run(processes.folder, {NAME: small(**settings)}, lease_seconds=15.0, checkpoint_seconds=1.0)
    learner = processes.learner(run_file, environment=environment)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "2", environment=environment)
    learner.wait_for_version(NAME, 5, actor)
    learner.wait_for((learner.folder / "run_state.pt").exists, "a first run state", actor)
    port = int(learner.address.rpartition(":")[2])
    learner.kill()
    again = processes.learner(run_file, "--resume=auto", environment=environment, port=port)
    again.wait_for_version(NAME, again.behavior(NAME).version + 3, actor)
    again.operator.drain(final=True)
    assert (again.wait(), actor.wait()) == (0, 0), again.said() + actor.said()
    violations = check_folder(folder)
    assert not violations, report(violations)
    histories = read(folder)
    assert len(histories.learners) == 2
    for lines in histories.learners:
        assert {"received", "queued", "ack_out", "taken", trains, "cut", "run_state", "published"} <= {
            line.event for line in lines
        }
    (lines,) = histories.actors
    assert {"opened", "policy", "rows", "sent", "ack_seen", "closed"} <= {line.event for line in lines}
