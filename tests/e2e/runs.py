"""Run files for trainings of a few seconds."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def small(**changes: Any) -> dict[str, Any]:
    """Returns the settings of a behavior that updates every 256 steps, and never ends by itself."""
    settings: dict[str, Any] = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 64, "buffer_size": 256, "num_epoch": 2, "learning_rate": 1.0e-3},
        "network_settings": {"hidden_units": 32, "num_layers": 1},
        "time_horizon": 32,
        "max_steps": 10**9,
        "summary_freq": 500,
    }
    return settings | changes


def cartpole(**changes: Any) -> dict[str, Any]:
    """Returns the settings of a behavior that learns CartPole within seconds."""
    hyperparameters = {
        "batch_size": 256,
        "buffer_size": 1024,
        "num_epoch": 8,
        "learning_rate": 2.0e-3,
        "learning_rate_schedule": "constant",
        "beta": 0.0,
        "lambd": 0.8,
        "ratio": "joint",
    }
    network = {"hidden_units": 64, "num_layers": 2, "activation": "tanh", "initialization": "orthogonal"}
    signals = {"extrinsic": {"gamma": 0.98}}
    return small(hyperparameters=hyperparameters, network_settings=network, reward_signals=signals) | changes


def write_run(folder: Path, behaviors: Mapping[str, Any], **rollcast: Any) -> Path:
    """Writes a run file and returns its path.

    Args:
        folder: Where it goes.
        behaviors: By name.
        rollcast: Keys of the block of that name; one with None is left out. A lease lasts longer than a busy machine holds an actor up.
    """
    path = folder / "run.yaml"
    block = {"lease_seconds": 10.0, "drain_seconds": 10.0, "torch_threads": 1, **rollcast}
    given = {key: value for key, value in block.items() if value is not None}
    document = {"behaviors": dict(behaviors), "env_settings": {"seed": 7}, "rollcast": given}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return path
