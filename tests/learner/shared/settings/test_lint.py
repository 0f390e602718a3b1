"""Tests unknown keys in run files."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.load import load_run_options
from tests.learner.installed import install

from .conftest import WriteRun

BEHAVIOR = "behaviors:\n  Ball:\n    trainer_type: ppo\n"


def test_every_problem_is_told_at_once(write_run: WriteRun) -> None:
    """Several mistakes are reported together."""
    with pytest.raises(UserError, match="and 2 more") as caught:
        load_run_options(write_run(BEHAVIOR + "    max_stepz: 1\n    time_horizon: soon\ndebugg: true\n"))
    assert len(caught.value.details) == 3


def test_names_of_packages_are_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_run: WriteRun) -> None:
    """A misspelled name of a package's trainer or signal gets a suggestion."""
    points = {"rollcast.reward_signals": {"brightness": "x:y"}, "rollcast.trainers": {"cautious": "x:y"}}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "suggested_of_a_test", "", points)))
    with pytest.raises(UserError, match=r"unknown key 'brightnes'; did you mean 'brightness'\?"):
        load_run_options(write_run(BEHAVIOR + "    reward_signals: {brightnes: {}}\n"))
    with pytest.raises(UserError, match=r"known keys: extrinsic, curiosity, rnd, gail, brightness$"):
        load_run_options(write_run(BEHAVIOR + "    reward_signals: {pride: {}}\n"))
    with pytest.raises(UserError, match=r"'cautios'; did you mean 'cautious'\?; the trainers are appo, cautious, "):
        load_run_options(write_run("behaviors: {Ball: {trainer_type: cautios}}\n"))


@pytest.mark.parametrize(
    ("more", "warnings"),
    [
        ("{trainer_type: ppo, max_steps: 2048, hyperparameters: {buffer_size: 2048, batch_size: 64}}", 1),
        ("{trainer_type: ppo, max_steps: 2049, hyperparameters: {buffer_size: 2048, batch_size: 64}}", 0),
        ("{trainer_type: sac, max_steps: 2048}", 0),  # its buffer_size is the size of a memory
    ],
)
def test_a_training_without_any_update_is_told_of(write_run: WriteRun, more: str, warnings: int) -> None:
    """A run too short for one update is a warning with both numbers and the next step."""
    for text in (f"behaviors: {{Ball: {more}}}\n", f"default_settings: {more}\n"):
        found = load_run_options(write_run(text)).warnings
        assert len(found) == warnings
        for line in found:
            assert "max_steps is 2048" in line.replace(": is", " is")
            assert "buffer_size 2048: nothing would be trained; raise max_steps, or lower buffer_size" in line


@pytest.mark.parametrize(("warmup", "warnings"), [(4999, 0), (5000, 1)])
def test_a_warm_up_that_never_ends_is_told_of(write_run: WriteRun, warmup: int, warnings: int) -> None:
    """A warm-up as long as the run is a warning with both numbers and the next step."""
    hyper = f"{{learning_rate_warmup: {warmup}, buffer_size: 64, batch_size: 64}}"
    found = load_run_options(
        write_run(f"behaviors: {{Ball: {{trainer_type: ppo, max_steps: 5000, hyperparameters: {hyper}}}}}\n")
    ).warnings
    assert len(found) == warnings
    for line in found:
        assert "learning_rate_warmup" in line
        assert line.endswith("is 5000, not below max_steps 5000: the learning rate never reaches its value; lower it")


@pytest.mark.parametrize("name", ["hyperparameters", "network_settings", "self_play", "engine_settings", "rollcast"])
def test_a_section_that_may_be_a_behavior_is_told_of(write_run: WriteRun, name: str) -> None:
    """ML-Agents accepts a behavior with the name of a section, so that one is accepted with a warning."""
    for block in ("{}", "{trainer_type: ppo, max_steps: 5}"):
        found = load_run_options(write_run(BEHAVIOR + f"  {name}: {block}\n"))
        assert list(found.options.behaviors) == ["Ball", name]
        assert (
            f"behaviors.{name}: is read as the name of a behavior; if it is a setting, write it " in found.warnings[0]
        )
