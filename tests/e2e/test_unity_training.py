"""Tests training with Unity players and every kind of behavior."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from rollcast.demonstrations.framing import DemonstrationFile
from rollcast.specs import ActionSpec, BehaviorSpec

from tests.e2e.processes import LearnerProcess, Processes
from tests.e2e.runs import cartpole, small
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.learner.training.export.test_unity_models import described, expected
from tests.learner.training.export.unity_behaviors import entities, floats, vector
from tests.tools.players.scenery import SCENES, Buffer

EVERYTHING = ("CartPole", "Pendulum", "Hybrid", "Groups", "Comers", "Teams", "Pictures", "Rows")
MAX_ERROR = 1e-4
TARGET_RETURN = 60.0


def test_every_kind_of_behavior_trains(processes: Processes, tmp_path: Path) -> None:
    """Eight behaviors of two players train, with equal log-probabilities and without losses."""
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
    """A goal that conditions the network and a buffer sensor train, and the models load."""
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
    """CartPole is learned with parameters, engine settings and lessons, and the model loads."""
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


MEMORY = {"sequence_length": 8, "memory_size": 16}


SELF_PLAY = {"save_steps": 64, "team_change": 128, "swap_steps": 32, "window": 3}


def ppo(
    trainer_type: str = "ppo", *, signals: dict[str, Any] | None = None, plays: bool = False, **network: Any
) -> dict[str, Any]:
    """Returns a behavior of an on-policy trainer."""
    changes = {} if signals is None else {"reward_signals": {"extrinsic": {}} | signals}
    if plays:
        changes["self_play"] = SELF_PLAY
    settings = small(trainer_type=trainer_type, **changes)
    settings["hyperparameters"] = {"batch_size": 32, "buffer_size": 64}
    settings["network_settings"] = {"hidden_units": 16, "num_layers": 2, **network}
    return settings


def sac(**network: Any) -> dict[str, Any]:
    """Returns a behavior of a replay trainer."""
    settings = ppo("sac", **network)
    settings["hyperparameters"] = {"batch_size": 32, "buffer_size": 1000, "steps_per_update": 10.0}
    return settings


BEHAVIORS = {
    "3DBall": sac(normalize=True),
    "3DBallHard": ppo(normalize=True, memory=MEMORY),
    "Walker": sac(normalize=True),
    "Crawler": ppo(normalize=True),
    "Worm": ppo("appo", normalize=True),
    "Basic": ppo("impala", memory=MEMORY),
    "Hallway": ppo(memory=MEMORY),
    "PushBlock": sac(memory=MEMORY),
    "Pyramids": ppo(signals={"curiosity": {"strength": 0.02, "network_settings": {"hidden_units": 16}}}),
    "BigWallJump": ppo(signals={"rnd": {"strength": 0.01, "network_settings": {"hidden_units": 16}}}),
    "SmallWallJump": ppo("appo", memory=MEMORY),
    "Sorter": ppo(),
    "GridFoodCollector": sac(),
    "VisualFoodCollector": ppo(memory=MEMORY, vis_encode_type="nature_cnn"),
    "PushBlockCollab": ppo("poca"),
    "DungeonEscape": ppo("poca", memory=MEMORY),
    "SoccerTwos": ppo("poca", plays=True),
    "Tennis": ppo(normalize=True, plays=True),
    "Striker": ppo("poca", plays=True, memory=MEMORY),
    "Goalie": ppo("poca", plays=True),
}


def declared(name: str) -> BehaviorSpec:
    """Returns the behavior of a scene, as far as its model shows it."""
    scene = SCENES[name]
    seen = [
        vector(sensor)
        if isinstance(sensor, int)
        else entities(sensor.most, sensor.size)
        if isinstance(sensor, Buffer)
        else floats(*sensor.shape)
        for sensor in scene.sensors
    ]
    return BehaviorSpec(name, tuple(seen), ActionSpec(scene.continuous, scene.branches))


@pytest.mark.nightly
def test_every_scene_trains(processes: Processes, tmp_path: Path) -> None:
    """Each scene trains two updates with equal log-probabilities and finite losses, and the model is ML-Agents'.

    Scenes with opponents play rated games, also those of groups.
    """
    assert set(BEHAVIORS) == set(SCENES)
    learner = processes.learner(run_for_any_behavior(tmp_path, default_settings=None, behaviors=BEHAVIORS))
    gateway = Gateway(processes, learner.address, play=("--task", "scenes", "--agents", "2"))
    for name in BEHAVIORS:
        assert learner.wait_for_version(name, 2, gateway.child).log_prob_error_max < MAX_ERROR, name
    for name, settings in BEHAVIORS.items():
        if "self_play" in settings:
            learner.wait_for(lambda name=name: games(learner, name) > 0, f"a game of {name}", gateway.child)  # type: ignore[misc]
    assert learner.events("update_not_finite") == []
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert not any(told["dropped"] for told in gateway.books())
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    for name, settings in BEHAVIORS.items():
        session: Any = onnxruntime.InferenceSession(learner.folder / f"{name}.onnx")  # type: ignore[attr-defined]
        memory = settings["network_settings"].get("memory", {"memory_size": 0})
        inputs, outputs = expected(declared(name), memory["memory_size"])
        assert (described(session.get_inputs()), described(session.get_outputs())) == (inputs, outputs), name


def games(learner: LearnerProcess, name: str) -> float:
    """Returns the number of counted games of a behavior."""
    numbers = learner.behavior(name).numbers
    return sum(value for key, value in numbers.items() if key.startswith(("games_won/", "games_drawn/", "games_lost/")))


PLAY = ("--task", "everything", "--agents", "6")


def imitating(demonstrations: Path) -> dict[str, Any]:
    """Returns a behavior that learns from demonstrations in every way that ML-Agents supports."""
    path = str(demonstrations)
    gail = {"demo_path": path, "use_actions": True, "use_vail": True, "network_settings": {"hidden_units": 16}}
    settings = small(
        reward_signals={"extrinsic": {}, "gail": gail},
        behavioral_cloning={"demo_path": path, "steps": 50_000, "strength": 0.5, "num_epoch": 1},
    )
    settings["hyperparameters"] = {"batch_size": 64, "buffer_size": 256}
    return settings


def test_every_kind_of_behavior_is_recorded_and_imitated(processes: Processes, tmp_path: Path) -> None:
    """Eight behaviors are recorded, and runs that imitate them report ML-Agents' statistics."""
    teacher = processes.learner(run_for_any_behavior(tmp_path / "teacher"), run="teacher")
    recorder = Gateway(processes, teacher.address, "--record", str(tmp_path / "seen.demo"), play=PLAY, name="recorder")
    for name in EVERYTHING:
        teacher.wait_for_version(name, 1, recorder.child)
    recorder.child.signal(signal.SIGTERM)
    assert recorder.child.wait() == 0, recorder.child.said()
    teacher.end()
    files = {}
    for path in tmp_path.glob("seen*.demo"):
        with DemonstrationFile(path) as file:
            files[file.brain.brain_name.partition("?")[0]] = path
            assert file.meta.number_episodes > 0
    assert set(files) == set(EVERYTHING)
    behaviors = {name: imitating(path) for name, path in files.items()}
    run_file = run_for_any_behavior(tmp_path / "pupil", default_settings=None, behaviors=behaviors)
    pupil = processes.learner(run_file, run="pupil")
    gateway = Gateway(processes, pupil.address, play=PLAY, name="gateway")
    for name in EVERYTHING:
        assert pupil.wait_for_version(name, 1, gateway.child).log_prob_error_max < MAX_ERROR, name
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert not any(told["dropped"] for told in gateway.books())
    pupil.signal(signal.SIGTERM)
    assert pupil.wait() == 0, pupil.said()
    told = {event["behavior"] for event in pupil.events("demonstrations")}
    assert told == set(EVERYTHING)
