"""Generates run files with values and notations at the edges of what ML-Agents reads."""

from __future__ import annotations

import random
from collections.abc import Iterator

NUMBERS = (
    (
        "0 -1 1 2 5.5 '5' '7.9' 5e3 5.0e+3 '5e3' 1.0e+22 -3.7 true false '' null abc [1] {} .inf -.inf .nan 0x10 010 1_000 "
        "' 6 ' 1:30 -0.0 2147483648 9223372036854775808 1.0e-9 1e-9 3 250 0.99 -5"
    )
    .replace("' 6 '", "'_6_'")
    .split()
)
FLAGS = "true false yes off on 'false' 'no' 'True' 0 1 2 -1 0.5 '' null [] [0] abc {} {a: 1}".replace(
    ": ", ":_"
).split()
TEXTS = [
    "text",
    "5",
    "5.5",
    "true",
    "null",
    "''",
    "[a]",
    "{a:_b}",
    "a/b",
    "a/b/c",
    "'../x'",
    "/x",
    "über",
    "~",
    "'a_b'",
    "a:b",
    "2020-01-01",
    "'x?y'",
    ".x",
    "a\\b",
    "'a//b'",
]
CHOICES = [
    "linear",
    "constant",
    "Linear",
    "null",
    "5",
    "''",
    "simple",
    "nature_cnn",
    "resnet",
    "match3",
    "fully_connected",
    "hyper",
    "none",
    "None",
]
BLOCKS = ["null", "{}", "[]", "5", "x", "[1]", "{unknown:_1}", "true", "''"]
PPO_NUMBERS = ["batch_size", "buffer_size", "learning_rate", "beta", "epsilon", "lambd", "num_epoch"]
SAC_NUMBERS = [
    "batch_size",
    "buffer_size",
    "learning_rate",
    "buffer_init_steps",
    "init_entcoef",
    "tau",
    "steps_per_update",
    "reward_signal_steps_per_update",
]
LESSONS = "environment_parameters: {m: {curriculum: [{name: a, value: 1, completion_criteria: {behavior: A, %s}}, {name: b, value: 2}]}}"
SAMPLER = "environment_parameters: {m: {sampler_type: %s, sampler_parameters: {%%s}}}"


def _behavior(inside: str, trainer: str = "ppo") -> str:
    return f"behaviors:\n  A:\n    trainer_type: {trainer}\n    {inside}\n"


PLACES: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = tuple(
    (form, tuple(keys), tuple(values))
    for form, keys, values in (
        (_behavior("hyperparameters: {%s}"), PPO_NUMBERS, NUMBERS),
        (_behavior("hyperparameters: {%s}", "poca"), PPO_NUMBERS, NUMBERS),
        (_behavior("hyperparameters: {%s}", "sac"), SAC_NUMBERS, NUMBERS),
        (_behavior("hyperparameters: {%s}"), ["learning_rate_schedule", "beta_schedule", "epsilon_schedule"], CHOICES),
        (_behavior("hyperparameters: {%s}"), ["shared_critic"], FLAGS),
        (_behavior("hyperparameters: {%s}", "sac"), ["save_replay_buffer"], FLAGS),
        (_behavior("%s"), ["keep_checkpoints", "max_steps", "checkpoint_interval", "time_horizon", "summary_freq"], NUMBERS),
        (_behavior("%s"), ["even_checkpoints", "threaded"], FLAGS),
        (_behavior("%s"), ["init_path"], TEXTS),
        (_behavior("%s"), ["network_settings", "reward_signals", "self_play", "behavioral_cloning", "hyperparameters"], BLOCKS),
        (_behavior("network_settings: {%s}"), ["hidden_units", "num_layers"], NUMBERS),
        (_behavior("network_settings: {%s}"), ["normalize", "deterministic"], FLAGS),
        (_behavior("network_settings: {%s}"), ["vis_encode_type", "goal_conditioning_type"], CHOICES),
        (_behavior("network_settings: {memory: {%s}}"), ["sequence_length", "memory_size"], NUMBERS),
        (_behavior("network_settings: {%s}"), ["memory"], BLOCKS),
        (_behavior("reward_signals: {extrinsic: {%s}}"), ["gamma", "strength"], NUMBERS),
        (_behavior("reward_signals: {curiosity: {%s}}"), ["gamma", "strength", "learning_rate", "encoding_size"], NUMBERS),
        (_behavior("reward_signals: {rnd: {%s}}"), ["gamma", "strength", "learning_rate", "encoding_size"], NUMBERS),
        (_behavior("reward_signals: {gail: {demo_path: x, %s}}"), ["strength", "learning_rate"], NUMBERS),
        (_behavior("reward_signals: {gail: {demo_path: x, %s}}"), ["use_vail", "use_actions"], FLAGS),
        (_behavior("reward_signals: {gail: {%s}}"), ["demo_path"], TEXTS),
        (_behavior("reward_signals: {%s}"), ["extrinsic", "curiosity", "gail", "unknown"], BLOCKS),
        (_behavior("behavioral_cloning: {demo_path: x, %s}"), ["steps", "strength", "samples_per_update", "num_epoch", "batch_size"], NUMBERS),
        (_behavior("self_play: {%s}"), ["save_steps", "team_change", "swap_steps", "window", "play_against_latest_model_ratio", "initial_elo"], NUMBERS),
        (_behavior("") + "env_settings: {env_path: x, %s}", ["base_port", "num_envs", "num_areas", "timeout_wait", "seed"], NUMBERS),
        (_behavior("") + "env_settings: {env_path: x, %s}", ["max_lifetime_restarts", "restarts_rate_limit_n", "restarts_rate_limit_period_s"], NUMBERS),
        (_behavior("") + "env_settings: {%s}", ["env_path", "env_args"], TEXTS),
        (_behavior("") + "engine_settings: {%s}", ["width", "height", "quality_level", "time_scale", "target_frame_rate", "capture_frame_rate"], NUMBERS),
        (_behavior("") + "engine_settings: {%s}", ["no_graphics", "no_graphics_monitor"], FLAGS),
        (_behavior("") + "checkpoint_settings: {%s}", ["run_id", "initialize_from", "results_dir"], TEXTS),
        (_behavior("") + "checkpoint_settings: {%s}", ["load_model", "resume", "force", "train_model", "inference"], FLAGS),
        (_behavior("") + "torch_settings: {%s}", ["device"], TEXTS),
        (_behavior("") + "%s", ["debug"], FLAGS),
        (_behavior("") + "environment_parameters: {%s}", ["m"], NUMBERS),
        (_behavior("") + SAMPLER % "uniform", ["min_value", "max_value", "seed"], NUMBERS),
        (_behavior("") + SAMPLER % "gaussian", ["mean", "st_dev"], NUMBERS),
        (_behavior("") + SAMPLER % "multirangeuniform", ["intervals"], ["[[0,1]]", "[[0,1],[2,3]]", "[]", "[[0]]", "[[1,0]]", "[['0','1']]", "5", "null"]),
        (_behavior("") + LESSONS, ["min_lesson_length", "threshold"], NUMBERS),
        (_behavior("") + LESSONS, ["signal_smoothing", "require_reset"], FLAGS),
        (_behavior("") + LESSONS, ["measure"], ["reward", "progress", "Reward", "null", "elo"]),
        ("%s", ["behaviors", "default_settings"], BLOCKS),
        (_behavior("") + "%s", ["env_settings", "engine_settings", "environment_parameters", "checkpoint_settings", "torch_settings"], BLOCKS),
        (_behavior("") + "%s", ["unknown", "environment_parameter"], BLOCKS),
    )
)  # fmt: skip
"""The text around a setting, keys, and values; an underscore in a value stands for a space."""


def _inherited(text: str) -> str:
    """Moves the behavior's settings into the defaults."""
    return text.replace("behaviors:\n  A:\n", "behaviors: {A: {}}\ndefault_settings:\n", 1)


def _twice(text: str) -> str:
    return text.replace("    trainer_type:", "    trainer_type: sac\n    trainer_type:", 1)


def _anchored(text: str) -> str:
    return text.replace("  A:\n", "  A: &a\n", 1) + "\ndefault_settings:\n  <<: *a\n" if "  A:\n" in text else text


NOTATIONS = (
    lambda text: text,
    lambda text: text,
    lambda text: text,
    _inherited,
    _twice,
    _anchored,
    lambda text: f"%YAML 1.1\n---\n{text}\n...\n",
    lambda text: "\ufeff" + text,
    lambda text: text.replace("\n", "\r\n"),
    lambda text: f"# a comment: {{\n{text}  # another\n",
)


def run_files(count: int, seed: int) -> Iterator[tuple[str, str]]:
    """Yields the setting and the text of run files; the same for the same seed.

    Args:
        count: Number of run files.
        seed: Of the choices.
    """
    draw = random.Random(seed)
    for _ in range(count):
        form, keys, values = draw.choice(PLACES)
        key, value = draw.choice(keys), draw.choice(values)
        written = f"{key}: {value if '_6_' not in value and '1_000' in value else value.replace('_', ' ') if value[0] in chr(39) + '{' else value}"
        yield written, draw.choice(NOTATIONS)(form % written)
