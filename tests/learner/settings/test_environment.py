"""Tests ML-Agents' blocks about environments, engine, checkpoints and torch."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.settings.environment import CheckpointSettings, EngineSettings, EnvironmentSettings


def test_the_defaults_are_those_of_mlagents() -> None:
    """The blocks have ML-Agents' defaults."""
    environment = EnvironmentSettings()
    assert (environment.base_port, environment.num_envs, environment.seed, environment.timeout_wait) == (
        5005,
        1,
        -1,
        60,
    )
    assert (EngineSettings().width, EngineSettings().time_scale, EngineSettings().quality_level) == (84, 20.0, 5)
    assert (CheckpointSettings().run_id, CheckpointSettings().results_dir) == ("ppo", "results")


def test_several_players_need_a_path() -> None:
    """Several players without a path are refused, because there is one editor."""
    with pytest.raises(ValidationError, match=r"num_envs is 2.*set env_path"):
        EnvironmentSettings(num_envs=2)
    assert EnvironmentSettings(num_envs=2, env_path="game.x86_64").num_envs == 2


@pytest.mark.parametrize("run_id", ["../escape", "", "a/b", ".git"])
def test_a_run_id_is_a_folder_name(run_id: str) -> None:
    """A run id cannot lead out of the results folder."""
    with pytest.raises(ValidationError, match="not a valid folder name"):
        CheckpointSettings(run_id=run_id)


def test_a_run_id_may_be_a_number() -> None:
    """A numeric run id is read as text."""
    assert CheckpointSettings.model_validate({"run_id": 7}).run_id == "7"


@pytest.mark.parametrize(("written", "expected"), [(True, True), ("auto", "auto"), ("true", True), (False, False)])
def test_resume_may_be_auto(written: object, expected: object) -> None:
    """`resume: auto` resumes if there is something to resume."""
    assert expected == CheckpointSettings.model_validate({"resume": written}).resume
