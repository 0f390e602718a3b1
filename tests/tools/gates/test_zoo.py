"""Tests that every PPO key of rl-zoo has one here."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from rollcast.specs import ActionSpec

from actor_client.settings.commands import GymSettings
from learner.networks.heads import LOG_CLIP, initial_log_stds
from learner.settings.hyperparameters import PPOHyperparameters
from learner.settings.load import load_run_options
from learner.settings.trainer import TrainerSettings
from tests.learner.trainers.pages import FOLDER
from tests.tools.gates.zoo import DEFAULTS, ENTRIES, KEYS, NETWORK_KEYS, actor_flags, behavior, command_line


def loaded(block: dict[str, Any], folder: Path) -> TrainerSettings:
    """Returns the settings of a run file with one behavior, which must have no warning."""
    path = folder / "run.yaml"
    path.write_text(yaml.safe_dump({"behaviors": {"Task": block}}), encoding="utf-8")
    found = load_run_options(path)
    assert [line for line in found.warnings if "nothing would be trained" not in line] == []
    return found.options.behaviors["Task"]


@pytest.mark.parametrize("task", ENTRIES)
def test_an_entry_becomes_a_run_file(task: str, tmp_path: Path) -> None:
    """Every entry of a gate's task gives a run file without warnings, whose settings have the entry's values."""
    entry = {**DEFAULTS, **ENTRIES[task]}
    settings = loaded(behavior(entry), tmp_path)
    hyper = settings.hyperparameters
    assert isinstance(hyper, PPOHyperparameters)
    assert hyper.buffer_size == entry["n_envs"] * entry["n_steps"]
    assert (settings.time_horizon, settings.max_steps) == (entry["n_steps"], entry["n_timesteps"])
    assert hyper.batch_size == min(entry["batch_size"], hyper.buffer_size)
    assert (hyper.num_epoch, hyper.lambd, hyper.beta) == (entry["n_epochs"], entry["gae_lambda"], entry["ent_coef"])
    assert (hyper.value_coefficient, hyper.max_grad_norm) == (entry["vf_coef"], entry["max_grad_norm"])
    assert settings.reward_signals.active()["extrinsic"].gamma == entry["gamma"]
    for ours, schedule, key in (
        (hyper.learning_rate, hyper.learning_rate_schedule, "learning_rate"),
        (hyper.epsilon, hyper.epsilon_schedule, "clip_range"),
    ):
        value = str(entry[key])
        assert (ours, schedule) == (float(value.removeprefix("lin_")), "linear" if "lin" in value else "constant")
    assert (settings.network_settings.normalize, hyper.normalize_values) == (entry["normalize"],) * 2


def test_a_network_has_its_widths_activation_and_exploration(tmp_path: Path) -> None:
    """HalfCheetah has a network of its own; on bounds of 2, a deviation of 1 is half of the half-range."""
    network = loaded(behavior(ENTRIES["HalfCheetah-v4"]), tmp_path).network_settings
    assert (network.widths, network.activation, network.initialization) == ((256, 256), "relu", "lecun")
    assert (network.log_std_init, network.std) == (-2.0, "free")
    pendulum = behavior(ENTRIES["Pendulum-v1"], half_range=2.0)["network_settings"]
    assert (pendulum["hidden_units"], pendulum["activation"], pendulum["std"]) == ([64, 64], "tanh", "state")
    action = ActionSpec(1, continuous_low=(-2.0,), continuous_high=(2.0,))
    (start,) = initial_log_stds(action, pendulum["log_std_init"])
    assert 2.0 * math.exp(start - LOG_CLIP) == pytest.approx(1.0)


def test_settings_of_an_arm(tmp_path: Path) -> None:
    """Values set on the command line over a file give what a file with the entry gives."""
    block = behavior(ENTRIES["HalfCheetah-v4"])
    path = tmp_path / "base.yaml"
    path.write_text("behaviors: {Task: {trainer_type: ppo, max_steps: 3}}\n", encoding="utf-8")
    changes = [f"behaviors.Task.{setting}" for setting in command_line(block)]
    assert load_run_options(path, set_items=changes, environ={}).options.behaviors["Task"] == loaded(block, tmp_path)


def test_flags_of_actors() -> None:
    """Environments and wrappers are flags that `rollcast-actor gym` has."""
    assert actor_flags(ENTRIES["MiniGrid-Empty-Random-5x5-v0"]) == [
        "--num-envs", "8", "--wrap", "minigrid.wrappers:FlatObsWrapper",
    ]  # fmt: skip
    assert actor_flags({"frame_stack": 4}) == ["--num-envs", "1", "--frame-stack", "4"]
    assert {"num_envs", "wrap", "frame_stack"} <= set(GymSettings.model_fields)


def test_a_key_without_a_translation_is_an_error() -> None:
    """Nothing is left out in silence."""
    with pytest.raises(KeyError, match="clip_range_vf"):
        behavior({"clip_range_vf": 0.2})
    with pytest.raises(KeyError, match="other widths"):
        behavior({"policy_kwargs": {"net_arch": {"pi": [8], "vf": [9]}}})


def test_the_page_has_every_key() -> None:
    """The table of the page names the keys that are translated, and keys that exist."""
    page = (FOLDER / "ppo.md").read_text(encoding="utf-8")
    _, _, table = page.partition("### From rl-zoo")
    rows = dict(re.findall(r"^\| `([a-z_, `]+)` \| (.*?) \|$", table.partition("\n### ")[0], flags=re.MULTILINE))
    named = {key for keys in rows for key in keys.split("`, `")}
    assert named == {*KEYS, *NETWORK_KEYS}
