"""A run gives each declared behavior its settings."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.settings.options import RunOptions, UnknownBehaviorError
from learner.settings.trainer import TrainerSettings


def test_a_listed_behavior_gets_its_settings_whatever_its_team() -> None:
    """A behavior id's team does not matter."""
    options = RunOptions(behaviors={"Striker": TrainerSettings(max_steps=7)})
    assert options.settings_for("Striker").max_steps == 7
    assert options.settings_for("Striker?team=1").max_steps == 7


def test_an_unlisted_behavior_gets_the_defaults_of_the_file() -> None:
    """default_settings is for behaviors that are not listed."""
    options = RunOptions(default_settings=TrainerSettings(max_steps=9), behaviors={"A": TrainerSettings()})
    assert options.settings_for("B").max_steps == 9


def test_an_unlisted_behavior_without_defaults_is_refused() -> None:
    """The error lists the behaviors that are known."""
    options = RunOptions(behaviors={"A": TrainerSettings(), "B": TrainerSettings()})
    with pytest.raises(UnknownBehaviorError, match="'C', only A, B"):
        options.settings_for("C")


def test_a_run_without_a_file_takes_every_behavior() -> None:
    """Without any settings a behavior is trained with the built-in defaults."""
    assert RunOptions().settings_for("Anything") == TrainerSettings()


@pytest.mark.parametrize(("name", "message"), [("a/b", "contains"), ("A?team=0", "without .team="), ("", "is empty")])
def test_a_behavior_name_is_a_file_name(name: str, message: str) -> None:
    """The name becomes a folder and an ONNX file."""
    with pytest.raises(ValidationError, match=message):
        RunOptions(behaviors={name: TrainerSettings()})
