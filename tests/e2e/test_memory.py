"""Tests recurrent policies over real connections."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import onnxruntime

from tests.e2e.processes import Child, LearnerProcess, Processes
from tests.e2e.runs import small, write_run
from tests.e2e.unity import Gateway, run_for_any_behavior

NAME = "CartPole"
MAX_ERROR = 1e-3
SIZE = 16
TASKS = ("CartPole", "Hybrid", "Groups", "Comers", "Teams", "Rows")


def recurrent(**changes: Any) -> dict[str, Any]:
    """Returns settings with a memory whose sequences do not divide the horizon."""
    memory = {"memory_size": SIZE, "sequence_length": 5}
    return small(
        network_settings={"hidden_units": 16, "num_layers": 1, "memory": memory},
        time_horizon=13,
        **changes,
    )


def agreed(learner: LearnerProcess, name: str, version: int, *others: Child) -> None:
    """Waits for a version, and looks at the disagreement of each update that is seen in the meantime."""

    def reached() -> bool:
        row = learner.behavior(name)
        assert row.log_prob_error_max < MAX_ERROR, name
        return row.version >= version

    learner.wait_for(reached, f"version {version} of {name}", *others)


def recurrent_ports(learner: LearnerProcess, name: str) -> tuple[list[Any], list[str]]:
    """Returns the shapes of the exported model's memory input and output."""
    session = onnxruntime.InferenceSession(learner.folder / f"{name}.onnx")  # type: ignore[attr-defined]
    shape = next(given.shape for given in session.get_inputs() if given.name == "recurrent_in")
    return shape, [found.name for found in session.get_outputs()]


def test_gym_actors_remember_as_the_learner_does(processes: Processes) -> None:
    """Actors' memories agree with the learner's over cuts, ends, swaps and a restart."""
    run_file = write_run(processes.folder, {NAME: recurrent()})
    learner = processes.learner(run_file)
    actors = [
        processes.actor(learner.address, "CartPole-v1", "--num-envs", number, *vector, name=f"actor-{number}")
        for number, vector in (("3", ()), ("2", ("--vector",)))
    ]
    agreed(learner, NAME, 4, *actors)
    port = int(learner.address.rpartition(":")[2])
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    shape, outputs = recurrent_ports(learner, NAME)
    assert shape == ["batch", 1, SIZE]
    assert outputs[-1] == "recurrent_out"

    again = processes.learner(run_file, "--resume", port=port)
    version = again.behavior(NAME).version
    assert version >= 4
    agreed(again, NAME, version + 2, *actors)
    row = again.behavior(NAME)
    assert {entry.reason for entry in row.books.dropped} <= {"generation", "stale"}
    assert not any("memory" in actor.err() for actor in actors)


def test_agents_of_players_remember_as_the_learner_does(processes: Processes, tmp_path: Path) -> None:
    """Memories of agents with groups and teams of two players agree with the learner's."""
    learner = processes.learner(run_for_any_behavior(tmp_path, default_settings=recurrent()))
    play = ("--task", "everything", "--agents", "6")
    gateway = Gateway(processes, learner.address, play=play, players=2)
    for name in TASKS:
        agreed(learner, name, 2, gateway.child)
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert not any(told["dropped"] for told in gateway.books())
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    assert recurrent_ports(learner, "Hybrid")[0] == ["batch", 1, SIZE]
