"""Tests unknown keys in run files."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.common.exits import UserError
from learner.settings.load import load_run_options
from tests.learner.installed import install

from .conftest import WriteRun

BEHAVIOR = "behaviors:\n  Ball:\n    trainer_type: ppo\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("behaviours: {}\n", "run.yaml:1: behaviours: unknown key 'behaviours'; did you mean 'behaviors'?"),
        (
            BEHAVIOR + "    max_stepz: 5\n",
            "run.yaml:4: behaviors.Ball.max_stepz: unknown key 'max_stepz'; did you mean",
        ),
        (BEHAVIOR + "    learning_rate: 1\n", "it belongs under hyperparameters"),
        (BEHAVIOR + "    behavior_cloning: {}\n", "did you mean 'behavioral_cloning'?"),
        (BEHAVIOR + "    hyperparameters: {lamda: 1}\n", "did you mean 'lambd'?"),
        (BEHAVIOR + "    hyperparameters: {gamma: 0.9}\n", "gamma: belongs under reward_signals.extrinsic"),
        (BEHAVIOR + "    reward_signals: {extrinsik: {}}\n", "did you mean 'extrinsic'?"),
        (BEHAVIOR + "    reward_signals: {pride: {}}\n", "known keys: extrinsic, curiosity, rnd, gail"),
        (BEHAVIOR + "    output_path: x\n", "results_dir"),
        (BEHAVIOR + "env_settings: {sead: 1}\n", "did you mean 'seed'?"),
        (BEHAVIOR + "checkpoint_settings: {runid: x}\n", "did you mean 'run_id'?"),
        (BEHAVIOR + "rollcast: {adress: x}\n", "did you mean 'address'?"),
        (BEHAVIOR + "target_return: 3\n", "it belongs under rollcast"),
        (
            BEHAVIOR + "environment_parameters: {m: {sampler_type: uniform, sampler_parameters: {min_valeu: 1}}}\n",
            "environment_parameters.m.sampler_parameters.min_valeu: unknown key 'min_valeu'; did you mean 'min_value'?",
        ),
        (
            BEHAVIOR + "environment_parameters: {m: {curriculum: [{name: a, valeu: 1}]}}\n",
            "did you mean 'value'?",
        ),
    ],
)
def test_unknown_keys_are_errors_with_the_nearest_key(write_run: WriteRun, text: str, expected: str) -> None:
    """The error has line, path and the nearest key."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(text))
    assert any(expected in line for line in [str(caught.value), *caught.value.details])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("    framework: pytorch\n", "behaviors.Ball.framework: is ignored"),
        ("    network_settings: {vis_encoder_type: resnet}\n", "is ignored; did you mean 'vis_encode_type'?"),
        ("    network_settings: {conditioning_type: none}\n", "did you mean 'goal_conditioning_type'?"),
        ("    network_settings: {memory: {sequence_len: 8}}\n", "did you mean 'sequence_length'?"),
        ("    self_play: {windov: 3}\n", "did you mean 'window'?"),
        ("    behavioral_cloning: {demo_path: x, stepz: 3}\n", "did you mean 'steps'?"),
        ("torch_settings: {devise: cpu}\n", "did you mean 'device'?"),
        ("checkpoint_settings: {train_model: true}\n", "old setting without effect"),
    ],
)
def test_keys_that_mlagents_ignores_are_warnings(write_run: WriteRun, text: str, expected: str) -> None:
    """Keys that ML-Agents ignores are warnings."""
    loaded = load_run_options(write_run(BEHAVIOR + text))
    assert len(loaded.warnings) == 1
    assert expected in loaded.warnings[0]
    assert "run.yaml:" in loaded.warnings[0]


def test_every_problem_is_told_at_once(write_run: WriteRun) -> None:
    """Several mistakes are reported together."""
    with pytest.raises(UserError, match="and 2 more") as caught:
        load_run_options(write_run(BEHAVIOR + "    max_stepz: 1\n    time_horizon: soon\ndebugg: true\n"))
    assert len(caught.value.details) == 3


@pytest.mark.parametrize(
    ("written", "expected", "warnings"), [('"false"', False, 1), ('"true"', True, 0), ("no", False, 0)]
)
def test_the_text_false_is_false(write_run: WriteRun, written: str, expected: bool, warnings: int) -> None:
    """The text "false" is False, with a warning, although ML-Agents reads it as true."""
    loaded = load_run_options(write_run(BEHAVIOR + f"    threaded: {written}\n"))
    assert expected == loaded.options.behaviors["Ball"].threaded
    assert warnings == len(loaded.warnings)


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


def test_an_unknown_trainer_is_one_error_whatever_its_hyperparameters(write_run: WriteRun) -> None:
    """An unknown trainer is one error without errors about its hyperparameters."""
    text = "behaviors: {Ball: {trainer_type: dqn, hyperparameters: {tau: 0.005}}}\n"
    with pytest.raises(UserError, match=r"no trainer 'dqn'; the trainers are appo, impala, poca, ppo, sac$"):
        load_run_options(write_run(text))


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
