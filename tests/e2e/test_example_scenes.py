"""The example scenes of ML-Agents, with every trainer and network that run files for them ask for."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import onnxruntime
import pytest

from tests.e2e.processes import Processes
from tests.e2e.runs import small
from tests.e2e.unity import Gateway, run_for_any_behavior
from tests.players.scenery import SCENES

pytestmark = pytest.mark.slow

MAX_ERROR = 1e-4
MEMORY = {"sequence_length": 8, "memory_size": 16}


def ppo(trainer_type: str = "ppo", *, signals: dict[str, Any] | None = None, **network: Any) -> dict[str, Any]:
    """A behavior of an on-policy trainer."""
    changes = {} if signals is None else {"reward_signals": {"extrinsic": {}} | signals}
    settings = small(trainer_type=trainer_type, **changes)
    settings["hyperparameters"] = {"batch_size": 32, "buffer_size": 64}
    settings["network_settings"] = {"hidden_units": 16, "num_layers": 2, **network}
    return settings


def sac(**network: Any) -> dict[str, Any]:
    """A behavior that replays."""
    settings = ppo("sac", **network)
    settings["hyperparameters"] = {"batch_size": 32, "buffer_size": 1000, "steps_per_update": 10.0}
    return settings


BEHAVIORS = {
    "3DBall": sac(normalize=True),
    "3DBallHard": ppo(normalize=True, memory=MEMORY),
    "Walker": sac(normalize=True),
    "Crawler": ppo(normalize=True),
    "Worm": ppo("appo", normalize=True),
    "Basic": ppo("impala"),
    "Hallway": ppo(memory=MEMORY),
    "PushBlock": sac(memory=MEMORY),
    "Pyramids": ppo(signals={"curiosity": {"strength": 0.02, "network_settings": {"hidden_units": 16}}}),
    "BigWallJump": ppo(signals={"rnd": {"strength": 0.01, "network_settings": {"hidden_units": 16}}}),
    "SmallWallJump": ppo("appo", memory=MEMORY),
    "Sorter": ppo(),
    "GridFoodCollector": sac(),
    "VisualFoodCollector": ppo(memory=MEMORY, vis_encode_type="nature_cnn"),
    "PushBlockCollab": ppo(),
    "Goalie": ppo("impala", memory=MEMORY),
    "Striker": ppo(),
}


def test_every_scene_trains(processes: Processes, tmp_path: Path) -> None:
    """Two updates each, with log-probabilities that agree; nothing is lost; the models have memory where there is some."""
    assert set(BEHAVIORS) == set(SCENES)
    learner = processes.learner(run_for_any_behavior(tmp_path, default_settings=None, behaviors=BEHAVIORS))
    gateway = Gateway(processes, learner.address, play=("--task", "scenes", "--agents", "2"))
    for name in BEHAVIORS:
        assert learner.wait_for_version(name, 2, gateway.child).log_prob_error_max < MAX_ERROR, name
    gateway.child.signal(signal.SIGTERM)
    assert gateway.child.wait() == 0, gateway.child.said()
    assert not any(told["dropped"] for told in gateway.books())
    learner.signal(signal.SIGTERM)
    assert learner.wait() == 0, learner.said()
    for name, settings in BEHAVIORS.items():
        session: Any = onnxruntime.InferenceSession(learner.folder / f"{name}.onnx")  # type: ignore[attr-defined]
        given = {value.name: value.shape for value in session.get_inputs()}
        memory = settings["network_settings"].get("memory")
        expected = None if memory is None else ["batch", 1, memory["memory_size"]]
        assert given.get("recurrent_in") == expected, name
