"""Tests edge cases of run files, each with its exact outcome.

Unless a case says otherwise, ML-Agents 1.1.0 was run on the same text: what it resolves, resolves to the same values
here, and what it refuses is refused. Where the two differ on purpose the case's name begins with ``ours``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.shared.settings.load import load_run_options

from .conftest import WriteRun

PPO = "behaviors:\n  A:\n    trainer_type: ppo\n"
SAC = "behaviors: {A: {trainer_type: sac, hyperparameters: {%s}}}\n"
MASS = PPO + "environment_parameters: {m: %s}\n"
LESSONS = MASS % "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: A, %s}}, {name: b, value: 2}]}"
SAMPLER = MASS % "{sampler_type: %s, sampler_parameters: {%s}}"

HYPER = "behaviors.A.hyperparameters."
NETWORK = "behaviors.A.network_settings."
SIGNALS = "behaviors.A.reward_signals."
DRAWN = "environment_parameters.m.curriculum.0.value."
CRITERIA = "environment_parameters.m.curriculum.0.completion_criteria."

RESOLVED: dict[str, tuple[str, dict[str, Any]]] = {
    # numbers as YAML 1.1 and people write them
    "text is a number": (PPO + "    hyperparameters: {learning_rate: 3e-4}\n", {HYPER + "learning_rate": 3e-4}),
    "text is a whole number": (PPO + "    max_steps: 5e5\n", {"behaviors.A.max_steps": 500000}),
    "quoted number": (PPO + "    max_steps: '500'\n", {"behaviors.A.max_steps": 500}),
    "underscores": (PPO + "    max_steps: 1_000\n", {"behaviors.A.max_steps": 1000}),
    "octal": (PPO + "    max_steps: 010\n", {"behaviors.A.max_steps": 8}),
    "ours: exponent for a whole number": (PPO + "    hyperparameters: {batch_size: 1e3}\n", {HYPER + "batch_size": 1000}),
    "one is true": (PPO + "    threaded: 1\n", {"behaviors.A.threaded": True}),
    "a quoted true": (PPO + "    threaded: 'true'\n", {"behaviors.A.threaded": True}),
    "no is false": (PPO + "    threaded: no\n", {"behaviors.A.threaded": False}),
    "a negative strength": (PPO + "    reward_signals: {extrinsic: {strength: -1}}\n", {SIGNALS + "extrinsic.strength": -1.0}),
    "a run id of digits": (PPO + "checkpoint_settings: {run_id: 7}\n", {"checkpoint_settings.run_id": "7"}),
    "arguments become text": (PPO + "env_settings: {env_args: [--a, 3, true]}\n", {"env_settings.env_args": ["--a", "3", "True"]}),
    # schedules
    "schedules follow": (
        PPO + "    hyperparameters: {learning_rate_schedule: constant}\n",
        {HYPER + "beta_schedule": "constant", HYPER + "epsilon_schedule": "constant"},
    ),
    "a schedule of its own stays": (
        PPO + "    hyperparameters: {learning_rate_schedule: constant, beta_schedule: linear}\n",
        {HYPER + "beta_schedule": "linear", HYPER + "epsilon_schedule": "constant"},
    ),
    "schedules filled before do not follow": (
        "default_settings: {trainer_type: ppo}\nbehaviors: {A: {hyperparameters: {learning_rate_schedule: constant}}}\n",
        {HYPER + "learning_rate_schedule": "constant", HYPER + "beta_schedule": "linear"},
    ),
    "schedules that followed are inherited": (
        ("default_settings: {trainer_type: ppo, hyperparameters: {learning_rate_schedule: constant}}\n"
        "behaviors: {A: {hyperparameters: {learning_rate_schedule: linear}}}\n"),
        {HYPER + "learning_rate_schedule": "linear", HYPER + "beta_schedule": "constant"},
    ),
    "sac's signals follow": (SAC % "steps_per_update: 10", {HYPER + "reward_signal_steps_per_update": 10.0}),
    "sac's signals on their own": (
        SAC % "steps_per_update: 10, reward_signal_steps_per_update: 2",
        {HYPER + "steps_per_update": 10.0, HYPER + "reward_signal_steps_per_update": 2.0},
    ),
    # checkpoints
    "even checkpoints": (
        PPO + "    even_checkpoints: true\n    keep_checkpoints: 7\n    max_steps: 1000\n",
        {"behaviors.A.checkpoint_interval": 142},
    ),
    "even checkpoints of a short run": (
        PPO + "    even_checkpoints: true\n    keep_checkpoints: 5\n    max_steps: 2\n", {"behaviors.A.checkpoint_interval": 1},
    ),
    "ours: even checkpoints without a number": (
        PPO + "    even_checkpoints: true\n    keep_checkpoints: 0\n", {"behaviors.A.checkpoint_interval": 500000},
    ),
    # merging
    "signals are added": (
        ("default_settings: {reward_signals: {curiosity: {strength: 0.5}}}\n"
        "behaviors: {A: {reward_signals: {extrinsic: {gamma: 0.9}}}}\n"),
        {SIGNALS + "curiosity.strength": 0.5, SIGNALS + "extrinsic.gamma": 0.9},
    ),
    "signals merge deeply": (
        ("default_settings: {reward_signals: {extrinsic: {gamma: 0.9, strength: 2}}}\n"
        "behaviors: {A: {reward_signals: {extrinsic: {strength: 3}}}}\n"),
        {SIGNALS + "extrinsic.gamma": 0.9, SIGNALS + "extrinsic.strength": 3.0},
    ),
    "a default without type brings ppo": (
        "default_settings: {max_steps: 5}\nbehaviors: {A: {hyperparameters: {beta: 1.0}}}\n",
        {HYPER + "beta": 1.0, "behaviors.A.max_steps": 5},
    ),
    "team_change is filled before": (
        "default_settings: {self_play: {save_steps: 100}}\nbehaviors: {A: {self_play: {save_steps: 50}}}\n",
        {"behaviors.A.self_play.save_steps": 50, "behaviors.A.self_play.team_change": 500},
    ),
    "yaml's own merging": (
        "behaviors:\n  B: &b {max_steps: 5}\n  A:\n    <<: *b\n    time_horizon: 3\n",
        {"behaviors.A.max_steps": 5, "behaviors.A.time_horizon": 3},
    ),
    # nulls
    "null turns a memory off": (
        "default_settings: {network_settings: {memory: {}}}\nbehaviors: {A: {network_settings: {memory: null}}}\n",
        {"default_settings.network_settings.memory.memory_size": 128, NETWORK + "memory": None},
    ),
    "null turns self-play off": (
        "default_settings: {self_play: {}}\nbehaviors: {A: {self_play: null}}\n", {"behaviors.A.self_play": None},
    ),
    "ours: a behavior with nothing in it": ("behaviors:\n  A:\n", {"behaviors.A.max_steps": 500000}),
    "ours: a block with nothing in it": (PPO + "env_settings:\n", {"env_settings.base_port": 5005}),
    # memory, encoding_size, cloning
    "an empty memory is one": (PPO + "    network_settings: {memory: {}}\n", {NETWORK + "memory.sequence_length": 64}),
    "encoding_size is a width": (
        PPO + "    reward_signals: {curiosity: {encoding_size: 64}}\n",
        {SIGNALS + "curiosity.network_settings.hidden_units": 64, SIGNALS + "curiosity.encoding_size": 64},
    ),
    "encoding_size beside a network is nothing": (
        PPO + "    reward_signals: {rnd: {encoding_size: 64, network_settings: {num_layers: 1}}}\n",
        {SIGNALS + "rnd.network_settings.hidden_units": 128},
    ),
    "an inherited network beats encoding_size": (
        ("default_settings: {reward_signals: {curiosity: {encoding_size: 64}}}\n"
        "behaviors: {A: {reward_signals: {curiosity: {encoding_size: 32}}}}\n"),
        {SIGNALS + "curiosity.network_settings.hidden_units": 64, SIGNALS + "curiosity.encoding_size": 32},
    ),
    # environment parameters
    "a number": (MASS % "3", {DRAWN + "sampler_type": "constant", DRAWN + "sampler_parameters.value": 3.0}),
    "ours: text that is a number": (MASS % "3e0", {DRAWN + "sampler_parameters.value": 3.0}),
    "one lesson of the parameter's name": (MASS % "3", {"environment_parameters.m.curriculum.0.name": "m"}),
    "uniform": (SAMPLER % ("uniform", ""), {DRAWN + "sampler_parameters": {"seed": -1, "min_value": 0.0, "max_value": 1.0}}),
    "progress to the end": (LESSONS % "measure: progress, threshold: 1", {CRITERIA + "threshold": 1.0}),
    "lessons named by numbers": (MASS % "{curriculum: [{name: 3, value: 1}]}", {"environment_parameters.m.curriculum.0.name": "3"}),
    "ours: exponent for a lesson's length": (LESSONS % "min_lesson_length: 1e2", {CRITERIA + "min_lesson_length": 100}),
}  # fmt: skip


def at(tree: Any, dotted: str) -> Any:
    """Returns the value at a path; None where a key is missing."""
    for key in dotted.split("."):
        tree = tree[int(key)] if isinstance(tree, list) else tree.get(key)
    return tree


@pytest.mark.parametrize("case", RESOLVED)
def test_it_resolves(write_run: WriteRun, case: str) -> None:
    """The value is the expected one, without warnings except about too few steps."""
    text, expected = RESOLVED[case]
    loaded = load_run_options(write_run(text))
    resolved = loaded.options.model_dump(mode="json")
    assert {path: at(resolved, path) for path in expected} == expected
    assert [line for line in loaded.warnings if "nothing would" not in line and "is dropped" not in line] == []


WARNED: dict[str, tuple[str, str, Any, str]] = {
    "a fraction": (PPO + "    max_steps: 12.9\n", "behaviors.A.max_steps", 12, "4: behaviors.A.max_steps: is 12.9: the fraction is dropped"),
    "an endless training": (
        PPO + "    max_steps: 5.0e22\n", "behaviors.A.max_steps", 2**63 - 1,
        "4: behaviors.A.max_steps: is '5.0e22', which is not possible here: it counts as 9223372036854775807",
    ),
    "no minibatch": (
        PPO + "    hyperparameters: {batch_size: 0}\n", HYPER + "batch_size", 1,
        "4: behaviors.A.hyperparameters.batch_size: is 0, which is not possible here: it counts as 1",
    ),
    "a discount beyond one": (
        PPO + "    reward_signals: {extrinsic: {gamma: 3.0}}\n", "behaviors.A.reward_signals.extrinsic.gamma", 3.0,
        "4: behaviors.A.reward_signals.extrinsic.gamma: is 3.0, outside 0 to 1: values grow without bound",
    ),
    "infinite": (
        PPO + "    hyperparameters: {beta: .inf}\n", HYPER + "beta", sys.float_info.max,
        "4: behaviors.A.hyperparameters.beta: is inf, which is not possible here: it counts as 1.7976931348623157e+308",
    ),
    "no number": (
        PPO + "    hyperparameters: {beta: .nan}\n", HYPER + "beta", 0.005,
        "4: behaviors.A.hyperparameters.beta: is nan: the default counts, 0.005",
    ),
    "no such port": (
        PPO + "env_settings: {base_port: 70000}\n", "env_settings.base_port", 65535,
        "4: env_settings.base_port: is 70000, which is not possible here: it counts as 65535",
    ),
    "no restarts": (
        PPO + "env_settings: {max_lifetime_restarts: -7}\n", "env_settings.max_lifetime_restarts", 0,
        "4: env_settings.max_lifetime_restarts: is -7, which is not possible here: it counts as 0",
    ),
    "a switch for a number": (
        PPO + "    time_horizon: true\n", "behaviors.A.time_horizon", 1, "4: behaviors.A.time_horizon: is True: it counts as 1",
    ),
    "a word for a switch": (
        PPO + "    threaded: maybe\n", "behaviors.A.threaded", True,
        "4: behaviors.A.threaded: is 'maybe', neither true nor false: it counts as true",
    ),
    "a long word for a switch": (
        PPO + f"debug: {'x' * 5000}\n", "debug", True,
        f"4: debug: is '{'x' * 59}..., neither true nor false: it counts as true",
    ),
    "a list for a text": (
        PPO + "torch_settings: {device: [cpu]}\n", "torch_settings.device", "['cpu']",
        "4: torch_settings.device: is read as the text \"['cpu']\"",
    ),
    "a text for a list": (
        PPO + "env_settings: {env_args: --map 3}\n", "env_settings.env_args", ["--map", "3"],
        "4: env_settings.env_args: is text, not a list: its words are taken",
    ),
    "two keys": (
        PPO + "    max_steps: 50000\n    max_steps: 60000\n", "behaviors.A.max_steps", 60000,
        "5: behaviors.A.max_steps is written twice, first on line 4: this one counts",
    ),
    "too many updates of the signals": (
        SAC % "steps_per_update: 10, reward_signal_steps_per_update: 0" + "\n", HYPER + "reward_signal_steps_per_update", 0.01,
        "1: behaviors.A.hyperparameters.reward_signal_steps_per_update: is 0, which is not possible here: it counts as 1e-06",
    ),
    "ours: the text false": (
        PPO + "    threaded: 'false'\n", "behaviors.A.threaded", False,
        "4: behaviors.A.threaded: the text 'false' is read as false (ML-Agents reads any text as true): remove the quotes",
    ),
    "null for a switch": (PPO + "debug:\n", "debug", False, "4: debug: is empty and is read as false"),
    "framework": (
        PPO + "    framework: tensorflow\n", "behaviors.A.trainer_type", "ppo",
        "4: behaviors.A.framework: is ignored: PyTorch is the only framework",
    ),
    "the documents' conditioning_type": (
        PPO + "    network_settings: {conditioning_type: none}\n", NETWORK + "goal_conditioning_type", "hyper",
        ("4: behaviors.A.network_settings.conditioning_type: unknown key 'conditioning_type' is ignored; did you mean "
        "'goal_conditioning_type'?"),
    ),
    "the old vis_encoder_type": (
        PPO + "    network_settings: {vis_encoder_type: resnet}\n", NETWORK + "vis_encode_type", "simple",
        ("4: behaviors.A.network_settings.vis_encoder_type: unknown key 'vis_encoder_type' is ignored; did you mean "
        "'vis_encode_type'?"),
    ),
    "a key of a memory": (
        PPO + "    network_settings: {memory: {sequence: 4}}\n", NETWORK + "memory.sequence_length", 64,
        ("4: behaviors.A.network_settings.memory.sequence: unknown key 'sequence' is ignored; did you mean "
        "'sequence_length'?"),
    ),
    "a key of self-play": (
        PPO + "    self_play: {swap_step: 4}\n", "behaviors.A.self_play.swap_steps", 2000,
        "4: behaviors.A.self_play.swap_step: unknown key 'swap_step' is ignored; did you mean 'swap_steps'?",
    ),
    "a key of a clone": (
        PPO + "    behavioral_cloning: {demo_path: d, stepz: 4}\n", "behaviors.A.behavioral_cloning.steps", 0,
        "4: behaviors.A.behavioral_cloning.stepz: unknown key 'stepz' is ignored; did you mean 'steps'?",
    ),
    "a key of torch": (
        PPO + "torch_settings: {devise: cpu}\n", "torch_settings.device", None,
        "4: torch_settings.devise: unknown key 'devise' is ignored; did you mean 'device'?",
    ),
    "a key beside a sampler": (
        MASS % "{sampler_type: uniform, sampler_parameters: {}, min_value: 3}", DRAWN + "sampler_parameters.min_value",
        0.0, ("4: environment_parameters.m.min_value: unknown key 'min_value' is ignored; it belongs under "
        "sampler_parameters"),
    ),
    "a minibatch beyond the buffer": (
        PPO + "    hyperparameters: {batch_size: 64, buffer_size: 32}\n", HYPER + "batch_size", 64,
        "4: behaviors.A.hyperparameters.batch_size: is 64, more than buffer_size 32: lower it, or raise buffer_size",
    ),
    "criteria of the last lesson": (
        MASS % "{curriculum: [{name: a, value: 1, completion_criteria: {behavior: A}}]}", CRITERIA + "behavior", "A",
        "4: environment_parameters.m: the last lesson, 'a', has completion_criteria; they are ignored",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNED)
def test_it_resolves_with_a_warning(write_run: WriteRun, case: str) -> None:
    """The value is the expected one, with one warning that has line, path and next step."""
    text, path, expected, warning = WARNED[case]
    loaded = load_run_options(write_run(text))
    assert at(loaded.options.model_dump(mode="json"), path) == expected
    told = [line.partition("run.yaml:")[2] for line in loaded.warnings if "nothing would be trained" not in line]
    assert told == [warning]


FOLDER = Path(__file__).parent / "golden"


def shared(value: Any, expected: Any) -> Any:
    """Returns a resolved tree without the keys that Rollcast adds to ML-Agents' blocks."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return {key: shared(value.get(key), expected[key]) for key in expected}
    if isinstance(value, list) and isinstance(expected, list):
        return [shared(*pair) for pair in zip(value, expected, strict=True)]
    return value


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.stem)
def test_a_run_file_resolves_to_the_same_tree(path: Path) -> None:
    """A run file has the same tree as in ML-Agents."""
    loaded = load_run_options(path)
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    assert shared(loaded.options.model_dump(mode="json"), expected) == expected
    assert [line for line in loaded.warnings if "nothing would" not in line and "is dropped" not in line] == []
