"""Tests how defaults are merged."""

from __future__ import annotations

import pytest

from learner.common.exits import UserError
from learner.settings import hyperparameters
from learner.settings.base import Whole
from learner.settings.hyperparameters import HyperparameterSettings, PPOHyperparameters
from learner.settings.load import load_run_options
from learner.settings.merge import deep_merge

from .conftest import WriteRun


def test_maps_merge_and_the_rest_is_replaced() -> None:
    """Maps are merged at any depth, and other values are replaced."""
    base = deep_merge({"a": {"b": 1, "c": [1, 2]}, "d": 1}, {"a": {"c": [3]}, "d": {"e": 1}})
    assert base == {"a": {"b": 1, "c": [3]}, "d": {"e": 1}}


def test_reward_signals_are_added_not_replaced(write_run: WriteRun) -> None:
    """A signal of the defaults is added to every behavior."""
    loaded = load_run_options(
        write_run("""
        default_settings: {reward_signals: {curiosity: {strength: 0.5}}}
        behaviors: {A: {reward_signals: {extrinsic: {gamma: 0.9}}}}
        """)
    )
    signals = loaded.options.behaviors["A"].reward_signals.active()
    assert list(signals) == ["extrinsic", "curiosity"]
    assert signals["curiosity"].strength == 0.5


def test_schedules_of_the_defaults_do_not_follow_the_behavior(write_run: WriteRun) -> None:
    """Schedules of the defaults are resolved before the merge."""
    loaded = load_run_options(
        write_run("""
        default_settings: {trainer_type: ppo}
        behaviors: {A: {hyperparameters: {learning_rate_schedule: constant}}}
        """)
    )
    settings = loaded.options.behaviors["A"].hyperparameters
    assert isinstance(settings, PPOHyperparameters)
    assert (settings.learning_rate_schedule, settings.beta_schedule) == ("constant", "linear")


def test_null_removes_a_map_of_the_defaults_where_it_may_be_written(write_run: WriteRun) -> None:
    """Null removes an optional map of the defaults."""
    loaded = load_run_options(
        write_run("""
        default_settings: {network_settings: {memory: {}}}
        behaviors: {A: {network_settings: {memory: null}}, B: }
        """)
    )
    assert loaded.options.behaviors["A"].network_settings.memory is None
    assert loaded.options.behaviors["B"].network_settings.memory is not None


def test_hyperparameters_need_a_trainer_type(write_run: WriteRun) -> None:
    """Hyperparameters without a trainer type are an error."""
    with pytest.raises(UserError, match=r"behaviors.A.hyperparameters: is given without a trainer_type"):
        load_run_options(write_run("behaviors: {A: {hyperparameters: {beta: 1}}}"))
    with pytest.raises(UserError, match=r"default_settings.hyperparameters: is given without a trainer_type"):
        load_run_options(write_run("default_settings: {hyperparameters: {beta: 1}}"))


def test_inherited_hyperparameters_of_another_trainer_are_an_error(
    write_run: WriteRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inherited hyperparameters of another trainer are an error."""

    class OtherHyperparameters(HyperparameterSettings):
        """The hyperparameters of a second trainer."""

        patience: Whole = 3

    registry = {**hyperparameters.OWN_TRAINERS, "other": hyperparameters.OwnTrainer(OtherHyperparameters, "")}
    monkeypatch.setattr(hyperparameters, "OWN_TRAINERS", registry)
    text = "default_settings: {trainer_type: ppo}\nbehaviors: {A: {trainer_type: other}}\n"
    with pytest.raises(UserError, match=r"run.yaml:2: behaviors.A.trainer_type: is 'other'.*'ppo'.*beta, num_epoch"):
        load_run_options(write_run(text))
    alone = load_run_options(write_run("behaviors: {A: {trainer_type: other, hyperparameters: {patience: 4}}}"))
    assert alone.options.model_dump()["behaviors"]["A"]["hyperparameters"]["patience"] == 4


@pytest.mark.parametrize("text", ["behaviors: 3", "behaviors: {A: 3}", "default_settings: [1]", "behaviors: {A: [x]}"])
def test_blocks_that_are_no_maps_are_refused(write_run: WriteRun, text: str) -> None:
    """A single value in the place of a block is an error with its path."""
    with pytest.raises(UserError, match="must be a map"):
        load_run_options(write_run(text))
