"""Tests the settings that each declared behavior gets."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from learner.shared.settings.options import RunOptions, UnknownBehaviorError
from learner.shared.settings.trainer import TrainerSettings


def test_a_listed_behavior_gets_its_settings_whatever_its_team() -> None:
    """A listed behavior's team is ignored."""
    options = RunOptions(behaviors={"Striker": TrainerSettings(max_steps=7)})
    assert options.settings_for("Striker").max_steps == 7
    assert options.settings_for("Striker?team=1").max_steps == 7


def test_an_unlisted_behavior_gets_the_defaults_of_the_file() -> None:
    """An unlisted behavior gets default_settings."""
    options = RunOptions(default_settings=TrainerSettings(max_steps=9), behaviors={"A": TrainerSettings()})
    assert options.settings_for("B").max_steps == 9


def test_an_unlisted_behavior_without_defaults_is_refused() -> None:
    """Without default_settings an unlisted behavior is refused with the known names."""
    options = RunOptions(behaviors={"A": TrainerSettings(), "B": TrainerSettings()})
    with pytest.raises(UnknownBehaviorError, match="'C', only A, B"):
        options.settings_for("C")


def test_a_run_plays_games_if_all_its_behaviors_have_self_play() -> None:
    """Self-play of one behavior of several is not enough, and defaults count like a listed behavior."""
    plain, game = {"trainer_type": "ppo"}, {"trainer_type": "ppo", "self_play": {}}

    def plays(**blocks: Any) -> bool:
        return RunOptions.model_validate(blocks).plays_games

    assert plays(default_settings=game)
    assert plays(behaviors={"A": game, "B": game})
    assert not plays(behaviors={"A": game, "B": plain})
    assert not plays(behaviors={"A": game}, default_settings=plain)
    assert not plays()


@pytest.mark.parametrize(("name", "message"), [("a/b", "contains"), ("A?team=0", "without .team="), ("", "is empty")])
def test_a_behavior_name_is_a_file_name(name: str, message: str) -> None:
    """A behavior name that cannot be a file name is refused."""
    with pytest.raises(ValidationError, match=message):
        RunOptions(behaviors={name: TrainerSettings()})
