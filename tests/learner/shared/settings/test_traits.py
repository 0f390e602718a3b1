"""Tests the traits of settings models, also of installed packages."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.shared.exits import UserError
from learner.shared.settings.hyperparameters import OWN_TRAINERS, Traits
from learner.shared.settings.load import load_run_options
from learner.shared.settings.rules import unsupported
from learner.shared.settings.trainer import TrainerSettings
from tests.learner.installed import install

from .conftest import WriteRun

MODULE = """
from dataclasses import replace
from learner.shared.settings.hyperparameters import APPOHyperparameters, HyperparameterSettings
from learner.shared.settings.hyperparameters import PPOHyperparameters, ReplayHyperparameters

class Slow(APPOHyperparameters):
    traits = replace(APPOHyperparameters.traits, max_policy_lag=100)

class Queue(ReplayHyperparameters):
    greed: float = 0.1

class Named:
    def __init__(self, model):
        self.settings_model = model
    def __call__(self, context):
        raise RuntimeError("is not made here")

near = Named(type("Near", (PPOHyperparameters,), {}))
far = Named(type("Far", (APPOHyperparameters,), {}))
slow = Named(Slow)
queue = Named(Queue)
bare = Named(HyperparameterSettings)
"""
NAMES = ("near", "far", "slow", "queue", "bare")


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"rollcast.trainers": {name: f"traits_of_a_test:{name}" for name in NAMES}}
    monkeypatch.syspath_prepend(str(install(tmp_path / "site", "traits_of_a_test", MODULE, points)))


def read(write_run: WriteRun, name: str, more: str = "") -> TrainerSettings:
    """Returns the settings of a behavior with a trainer."""
    return load_run_options(write_run(f"behaviors: {{A: {{trainer_type: {name}}}}}\n{more}")).options.behaviors["A"]


@pytest.mark.parametrize(("name", "parent"), [("near", "ppo"), ("far", "appo")])
def test_a_subclass_has_the_traits_of_its_parent(name: str, parent: str, write_run: WriteRun) -> None:
    """A subclass inherits all traits and the default of `threaded`."""
    settings = read(write_run, name)
    assert settings.traits == OWN_TRAINERS[parent].settings_model.traits
    assert settings.threaded is read(write_run, parent).threaded is (parent == "appo")


def test_a_replay_trainer_needs_no_critics(write_run: WriteRun) -> None:
    """A replay trainer's settings need neither a target network nor an entropy coefficient."""
    settings = read(write_run, "queue")
    assert (settings.traits.replay, settings.traits.squashed, settings.threaded) == (True, False, False)
    assert not {"tau", "init_entcoef"} & set(type(settings.hyperparameters).model_fields)


def test_nothing_is_known_of_a_trainer_that_declares_nothing(write_run: WriteRun) -> None:
    """A trainer without traits has no lag limit and is refused in lock-step."""
    assert read(write_run, "bare").traits == Traits()
    with pytest.raises(UserError, match="bare cannot train in lock-step: use one of appo, impala, poca, ppo, sac"):
        read(write_run, "bare", "rollcast: {lockstep: {}}\n")


def test_self_play_goes_by_traits(write_run: WriteRun) -> None:
    """A trainer that does not declare it is refused with self-play, by name."""
    loaded = load_run_options(write_run("behaviors: {A: {trainer_type: bare, self_play: {}}}"))
    (line,) = unsupported(loaded.options)
    assert line.startswith("behaviors.A.self_play: bare does not support self-play; remove it, or use one of: appo")


@pytest.mark.parametrize("name", ["near", "queue"])
def test_lock_step_takes_trainers_of_packages(name: str, write_run: WriteRun) -> None:
    """A subclass of a repeatable model is accepted in lock-step."""
    assert read(write_run, name, "rollcast: {lockstep: {}}\n").traits.repeatable
