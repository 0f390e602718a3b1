"""Unity players train: every kind of behavior, through a gateway, with what the run file says."""

from __future__ import annotations

import signal
from pathlib import Path

import onnxruntime
import pytest

from tests.e2e.processes import Processes
from tests.e2e.runs import cartpole
from tests.e2e.unity import Gateway, run_for_any_behavior

pytestmark = pytest.mark.slow

EVERYTHING = ("CartPole", "Pendulum", "Hybrid", "Groups", "Comers", "Teams", "Pictures", "Rows")
MAX_ERROR = 1e-4
TARGET_RETURN = 60.0


def test_every_kind_of_behavior_trains(processes: Processes, tmp_path: Path) -> None:
    """Eight behaviors of two players: log-probabilities agree, nothing is lost, and players see no wrong reply."""
    learner = processes.learner(run_for_any_behavior(tmp_path))
    play = ("--task", "everything", "--agents", "6", "--statistics")
    gateway = Gateway(processes, learner.address, play=play, players=2)
    rows = {name: learner.wait_for_version(name, 3, gateway.child) for name in EVERYTHING}
    for name, row in rows.items():
        assert row.log_prob_error_max < MAX_ERROR, name
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert gateway.players_said().count("the trainer closed: 400") == 2, gateway.players_said()
    books = gateway.books()
    assert {told["behavior"] for told in books} == set(EVERYTHING)
    assert not any(told["dropped"] for told in books), books
    learner.wait_for(lambda: not learner.actor("gateway").connected, "the gateway has gone")


def test_goals_and_lists_of_entities_train(processes: Processes, tmp_path: Path) -> None:
    """A goal that conditions the network, and a buffer sensor: log-probabilities agree and the models load."""
    learner = processes.learner(run_for_any_behavior(tmp_path))
    tasks = {"Goal": "goal", "Crowd": "crowd"}
    gateways = {
        name: Gateway(processes, learner.address, play=("--task", task), name=task) for name, task in tasks.items()
    }
    for name, gateway in gateways.items():
        assert learner.wait_for_version(name, 3, gateway.child).log_prob_error_max < MAX_ERROR, name
    for gateway in gateways.values():
        gateway.child.signal(signal.SIGTERM)
        assert gateway.child.wait() == 0, gateway.child.said()
        assert not any(told["dropped"] for told in gateway.books())
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    for name, shapes in (("Goal", [[1], [4]]), ("Crowd", [[6, 2], [1]])):
        session = onnxruntime.InferenceSession(learner.folder / f"{name}.onnx")  # type: ignore[attr-defined]
        assert [given.shape for given in session.get_inputs()][: len(shapes)] == [["batch", *shape] for shape in shapes]


def test_a_run_of_unity_players_ends_as_it_shall(processes: Processes, tmp_path: Path) -> None:
    """CartPole is learned; parameters and engine settings arrive, lessons follow; the model that is left loads."""
    settings = {
        "default_settings": cartpole(),
        "environment_parameters": {
            "mass": {"sampler_type": "uniform", "sampler_parameters": {"min_value": 0.5, "max_value": 3.0}},
            "length": {
                "curriculum": [
                    {
                        "name": "short",
                        "completion_criteria": {"behavior": "CartPole", "measure": "reward", "threshold": 5.0},
                        "value": 1.0,
                    },
                    {"name": "long", "value": 4.0},
                ]
            },
        },
        "engine_settings": {"time_scale": 12.5},
    }
    run = run_for_any_behavior(tmp_path, **settings)
    learner = processes.learner(run, "--target-return", str(TARGET_RETURN))
    gateway = Gateway(processes, learner.address, play=("--statistics",))
    assert gateway.child.wait() == 0, gateway.child.said()
    assert learner.wait() == 0, learner.said()
    assert "the trainer closed: 400" in gateway.players_said()
    told = [line for event in gateway.told() if event["event"] == "side_channel" for line in event["told"]]
    assert [line["value"] for line in told if line.get("parameter") == "length"] == [1.0, 4.0]
    assert next(line["sampler"] for line in told if line.get("parameter") == "mass") == 0
    assert [line["values"] for line in told if line.get("engine") == 2] == [[12.5]]
    session = onnxruntime.InferenceSession(learner.folder / "CartPole.onnx")  # type: ignore[attr-defined]
    assert session.get_inputs()[0].name == "obs_0"
    summary = (learner.folder / "CartPole").glob("events.out.*")
    assert b"Scripted/Two" in b"".join(path.read_bytes() for path in summary)
