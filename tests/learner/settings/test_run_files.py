"""The example run files can be started, and say how."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.settings.hyperparameters import PPOHyperparameters
from learner.settings.load import load_run_options
from learner.settings.rules import unsupported

FOLDER = Path(__file__).parents[3] / "deploy" / "runs"
GYM_RUNS = {"cartpole": "CartPole", "cartpole-fast": "CartPole", "pendulum": "Pendulum", "lunarlander": "LunarLander"}


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_an_example_loads_without_a_warning(path: Path) -> None:
    """An example is a good example: no warning, nothing that is not built, its own run id."""
    loaded = load_run_options(path)
    assert loaded.warnings == ()
    assert unsupported(loaded.options) == []
    assert path.stem == loaded.options.checkpoint_settings.run_id


@pytest.mark.parametrize(("name", "behavior"), GYM_RUNS.items())
def test_a_gym_example_is_textbook_ppo_and_says_how_to_start(name: str, behavior: str) -> None:
    """Gym run files use the joint ratio and orthogonal tanh networks, and name both commands."""
    path = FOLDER / f"{name}.yaml"
    options = load_run_options(path).options
    settings = options.behaviors[behavior]
    assert isinstance(settings.hyperparameters, PPOHyperparameters)
    assert settings.hyperparameters.ratio == "joint"
    assert (settings.network_settings.activation, settings.network_settings.initialization) == ("tanh", "orthogonal")
    assert options.rollcast.target_return is not None
    assert f"rollcast-learner serve deploy/runs/{name}.yaml" in path.read_text()
    assert "rollcast-actor gym --env " in path.read_text()
