"""Tests deterministic episodes of a run's model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from rollcast.specs import BehaviorSpec

from actor_client.envs.factory import make_env_batch
from learner.networks.policy import PolicyNetwork
from learner.publish.unity import export_unity
from learner.settings.network import NetworkSettings
from tests.tools.bench.measurement import MeasurementFailed
from tests.tools.gates.greedy import _Player, play


def model_of(env: str, path: Path) -> BehaviorSpec:
    """Writes an untrained model for an environment."""
    spec = make_env_batch(env, num_envs=1).spec
    generator = torch.Generator().manual_seed(1)
    export_unity(PolicyNetwork(spec, NetworkSettings(hidden_units=8, num_layers=1), generator), path)
    return spec


def test_the_same_starts_bring_the_same_returns(tmp_path: Path) -> None:
    """Equal seeds give equal returns."""
    model_of("CartPole-v1", tmp_path / "model.onnx")
    first, again = (play(tmp_path / "model.onnx", "CartPole-v1", {}, range(3)) for _ in range(2))
    assert first == again
    assert all(score >= 8.0 for score in first)


def test_continuous_actions_fill_the_bounds_of_the_environment(tmp_path: Path) -> None:
    """The model's -1 to 1 become torques from -2 to 2."""
    model_of("Pendulum-v1", tmp_path / "model.onnx")
    player = _Player(tmp_path / "model.onnx", gymnasium.make("Pendulum-v1"))
    torques: list[Any] = [player._choice(np.array([value], np.float32)) for value in (-1.0, 0.0, 0.5, 1.0)]
    assert np.concatenate(torques).tolist() == [-2.0, 0.0, 1.0, 2.0]
    assert -2000.0 < player.episode(1) < 0.0


def test_a_missing_model_is_a_failed_measurement(tmp_path: Path) -> None:
    """A run without a model is a failed measurement."""
    with pytest.raises(MeasurementFailed, match="no model"):
        play(tmp_path / "none.onnx", "CartPole-v1", {}, [1])
