"""The run files of MountainCar show what a reward signal adds, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learner.settings.load import load_run_options

ROOT = Path(__file__).parents[3]
CONTROL = ROOT / "tests" / "gates" / "runs" / "mountaincar.yaml"


def settings(path: Path) -> dict[str, Any]:
    """Everything that a run file says of its behavior, defaults included."""
    return load_run_options(path).options.behaviors["MountainCar"].model_dump(mode="json")


@pytest.mark.parametrize("signal", ["curiosity", "rnd"])
def test_they_differ_from_the_control_by_one_signal(signal: str) -> None:
    """Network, hyperparameters and the extrinsic signal are those of the file that never learns; nothing is normalized."""
    control, found = settings(CONTROL), settings(ROOT / "deploy" / "runs" / f"mountaincar-{signal}.yaml")
    assert not control["network_settings"]["normalize"]
    added = found["reward_signals"].pop(signal)
    assert added["network_settings"]["normalize"]
    assert found == control
