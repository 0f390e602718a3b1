"""Tests loading a run, and resolved settings as documents."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from learner.common.exits import ExitCode, UserError
from learner.settings.load import MASK, effective_document, load_run_options, to_yaml
from learner.settings.rules import endless_lessons

from .conftest import WriteRun


def test_no_file_runs_the_defaults_with_a_warning() -> None:
    """Without a run file any behavior is trained with PPO, with a warning."""
    loaded = load_run_options(None)
    assert loaded.options.settings_for("Any").trainer_type == "ppo"
    (warning,) = loaded.warnings
    assert "every behavior that actors declare" in warning
    assert "rollcast-learner serve RUN.yaml" in warning
    assert set(loaded.sources.values()) == {"default"}


def test_a_file_without_behaviors_needs_defaults(write_run: WriteRun) -> None:
    """A file without behaviors needs default_settings."""
    with pytest.raises(UserError, match="neither behaviors nor default_settings") as caught:
        load_run_options(write_run("debug: true\n"))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert load_run_options(write_run("default_settings: {max_steps: 3}")).options.settings_for("A").max_steps == 3


def test_blocks_with_nothing_in_them_are_empty(write_run: WriteRun) -> None:
    """An empty block or behavior has the defaults."""
    loaded = load_run_options(write_run("behaviors:\n  A:\nenv_settings:\n  # seed: 3\nrollcast:\n"))
    assert loaded.options.env_settings.seed == -1
    assert list(loaded.options.behaviors) == ["A"]
    assert loaded.sources["behaviors.A.max_steps"] == "default"


def test_sources_tell_inherited_from_written_from_derived(write_run: WriteRun) -> None:
    """Each value of a behavior has its source: inherited, written or derived."""
    sources = load_run_options(
        write_run("""
        default_settings:
          time_horizon: 32
        behaviors:
          A:
            trainer_type: ppo
            max_steps: 1000
            even_checkpoints: true
        environment_parameters:
          mass: 3
        """)
    ).sources
    assert sources["default_settings.time_horizon"] == "yaml"
    assert sources["behaviors.A.time_horizon"] == "default_settings"
    assert sources["behaviors.A.max_steps"] == "yaml"
    assert sources["behaviors.A.checkpoint_interval"] == "derived"
    assert sources["behaviors.A.summary_freq"] == "default"
    assert sources["environment_parameters.mass.curriculum"] == "yaml"
    assert sources["debug"] == "default"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("debug: {}", "debug: must be true or false"),
        ("env_settings: 5", "env_settings: must be a map of settings"),
        ("env_settings: {env_args: x}", "env_settings.env_args: must be a list"),
        ("checkpoint_settings: {run_id: yes}", "checkpoint_settings.run_id: must be text, got True"),
        ("env_settings: {seed: 99999999999}", "env_settings.seed: must be less than"),
        (
            "default_settings: {self_play: {initial_elo: 1.0e+300}}",
            "initial_elo: must be less than or equal to 1000000",
        ),
        (
            "default_settings: {self_play: {initial_elo: -2000000}}",
            "initial_elo: must be greater than or equal to -1000000",
        ),
        ("env_settings: {num_envs: 2}", "set env_path"),
        ("environment_parameters: 3", "environment_parameters: must be a map"),
        ("rollcast: {address: '10.0.0.1:1'}", "--insecure"),
        ("checkpoint_settings: {resume: {a: 1}}", "checkpoint_settings.resume"),
        ("checkpoint_settings: {load_model: []}", "checkpoint_settings.load_model: must be true or false"),
    ],
)
def test_wrong_values_have_their_line(write_run: WriteRun, text: str, expected: str) -> None:
    """The message has line, path, rule and value."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(f"behaviors: {{A: }}\n{text}\n"))
    shown = [str(caught.value), *caught.value.details]
    assert any(expected in line and "run.yaml:2: " in line for line in shown)


def test_a_long_value_is_cut_in_messages(write_run: WriteRun) -> None:
    """A long value is cut in messages."""
    with pytest.raises(UserError) as caught:
        load_run_options(write_run(f"behaviors: {{A: }}\ndebug: {'x' * 5000}\n"))
    assert len(str(caught.value)) < 400


def test_one_mistake_is_one_error(write_run: WriteRun) -> None:
    """Defaults that depend on a wrong value are not reported."""
    path = write_run("behaviors: {A: {trainer_type: ppo, hyperparameters: {batch_size: lots}}}\n")
    with pytest.raises(UserError, match=r"batch_size: must be .*, got 'lots'$") as caught:
        load_run_options(path)
    assert caught.value.details == ()


def test_values_that_hardly_make_sense_are_warnings(write_run: WriteRun) -> None:
    """A minibatch larger than the buffer, and criteria of a last lesson, are warnings."""
    loaded = load_run_options(
        write_run("""
        behaviors: {A: {trainer_type: ppo, hyperparameters: {batch_size: 64, buffer_size: 32}}}
        environment_parameters:
          mass: {curriculum: [{name: only, value: 1, completion_criteria: {behavior: A}}]}
        """)
    )
    assert len(loaded.warnings) == 2
    assert "more than buffer_size 32" in loaded.warnings[0]
    assert "the last lesson, 'only'" in loaded.warnings[1]


@pytest.mark.parametrize(
    ("behaviors", "told"),
    [
        ("behaviors: {Walker: }", ["no behavior 'Waker'; did you mean 'Walker'?"]),
        ("behaviors: {B: , A: }", ["no behavior 'Waker'; it lists A, B"]),
        ("behaviors: {Waker: }", []),
        ("default_settings: {}", []),
        ("default_settings: {}\nbehaviors: {Walker: }", []),
    ],
)
def test_lessons_that_nothing_can_end_are_found(write_run: WriteRun, behaviors: str, told: list[str]) -> None:
    """A lesson whose behavior cannot exist is reported with its place."""
    criteria = "{behavior: Waker, threshold: 5}"
    lessons = f"[{{name: easy, value: 1, completion_criteria: {criteria}}}, {{name: hard, value: 2}}]"
    path = write_run(f"{behaviors}\nenvironment_parameters: {{mass: {{curriculum: {lessons}}}}}\n")
    found = list(endless_lessons(load_run_options(path).options))
    assert [line.partition("lists ")[2] for line in found] == told
    assert all("environment_parameters.mass.curriculum.0.completion_criteria.behavior" in line for line in found)
    assert all("lesson 'easy' never ends" in line for line in found)


def test_a_lesson_by_evaluations_needs_evaluations(write_run: WriteRun) -> None:
    """Without an interval nothing is evaluated, and the line says what to set."""
    criteria = "{behavior: A, measure: evaluation, threshold: 5}"
    lessons = f"[{{name: easy, value: 1, completion_criteria: {criteria}}}, {{name: hard, value: 2}}]"
    text = f"behaviors: {{A: }}\nenvironment_parameters: {{mass: {{curriculum: {lessons}}}}}\n"
    (line,) = endless_lessons(load_run_options(write_run(text)).options)
    assert line.endswith("nothing is evaluated; set rollcast.evaluation.interval_steps")
    text += "rollcast: {evaluation: {interval_steps: 1000}}\n"
    assert list(endless_lessons(load_run_options(write_run(text)).options)) == []


def test_loading_changes_nothing_for_the_next_time(write_run: WriteRun) -> None:
    """Two loads of a file do not affect each other."""
    path = write_run("behaviors: {A: }\n")
    load_run_options(path, cli={"seed": 3}, set_items=["behaviors.A.max_steps=3"])
    assert load_run_options(path).options.behaviors["A"].max_steps == 500000


def test_the_settings_need_no_torch() -> None:
    """Loading settings does not import torch."""
    code = "import sys, learner.settings; print(sorted({'torch', 'grpc', 'numpy', 'rich'} & set(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "[]"


RUN = """
default_settings:
  trainer_type: ppo
  hyperparameters: {learning_rate: 1e-3, learning_rate_schedule: constant}
behaviors:
  Ball:
    network_settings: {hidden_units: 64, memory: {}}
    reward_signals: {curiosity: {strength: 0.02, encoding_size: 32}}
    max_steps: 2.0e5
    self_play: {save_steps: 1000}
environment_parameters:
  gravity: {sampler_type: multirangeuniform, sampler_parameters: {intervals: [[1, 2], [4, 5]]}}
checkpoint_settings: {run_id: first}
rollcast: {target_return: 100}
"""

NETWORK = {
    "normalize": False,
    "observation_clip": 5.0,
    "hidden_units": 128,
    "num_layers": 2,
    "vis_encode_type": "simple",
    "memory": None,
    "tower": None,
    "goal_conditioning_type": "hyper",
    "deterministic": False,
    "activation": "tanh",
    "initialization": "orthogonal",
    "log_std_init": None,
    "std": None,
    "critic_only": [],
}

BALL = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 1024,
        "buffer_size": 10240,
        "learning_rate": 0.001,
        "learning_rate_schedule": "constant",
        "learning_rate_warmup": 0,
        "desired_kl": 0.01,
        "target_kl": None,
        "weight_decay": 0.0,
        "beta": 0.005,
        "epsilon": 0.2,
        "lambd": 0.95,
        "num_epoch": 3,
        "shared_critic": False,
        "beta_schedule": "constant",
        "epsilon_schedule": "constant",
        "max_grad_norm": None,
        "ratio": "per_action",
        "adam_epsilon": 1e-8,
        "value_coefficient": 0.5,
        "normalize_values": True,
        "normalize_advantages": True,
        "gradient_accumulation": 1,
    },
    "network_settings": {
        **NETWORK,
        "hidden_units": 64,
        "memory": {"sequence_length": 64, "memory_size": 128},
    },
    "reward_signals": {
        "extrinsic": {"gamma": 0.99, "strength": 1.0, "reward_clip": None, "network_settings": NETWORK},
        "curiosity": {
            "gamma": 0.99,
            "strength": 0.02,
            "network_settings": {**NETWORK, "hidden_units": 32, "activation": "swish"},
            "learning_rate": 0.0003,
            "encoding_size": 32,
        },
    },
    "init_path": None,
    "keep_checkpoints": 5,
    "even_checkpoints": False,
    "max_steps": 200000,
    "checkpoint_interval": 500000,
    "time_horizon": 64,
    "summary_freq": 50000,
    "threaded": False,
    "self_play": {
        "save_steps": 1000,
        "team_change": 5000,
        "swap_steps": 2000,
        "window": 10,
        "play_against_latest_model_ratio": 0.5,
        "initial_elo": 1200.0,
        "draw": "uniform",
        "frozen_opponents": {},
        "frozen_opponents_ratio": 0.25,
    },
    "behavioral_cloning": None,
}


def test_a_behavior_resolves_to_a_complete_tree(write_run: WriteRun) -> None:
    """A behavior resolves to a complete tree by ML-Agents' rules."""
    resolved = load_run_options(write_run(RUN)).options.model_dump(mode="json")
    assert resolved["behaviors"] == {"Ball": BALL}
    assert json.loads(json.dumps(resolved)) == resolved
    assert list(resolved) == [
        "default_settings",
        "behaviors",
        "env_settings",
        "engine_settings",
        "environment_parameters",
        "checkpoint_settings",
        "torch_settings",
        "debug",
        "rollcast",
    ]


def test_what_is_written_into_the_run_folder_reads_back_the_same(write_run: WriteRun, tmp_path: Path) -> None:
    """configuration.yaml of a run loads as the same run."""
    loaded = load_run_options(write_run(RUN))
    written = tmp_path / "configuration.yaml"
    written.write_text(to_yaml(effective_document(loaded)))
    again = load_run_options(written)
    assert again.options == loaded.options
    assert again.warnings == ()


def test_every_value_has_a_source(write_run: WriteRun) -> None:
    """Every value has a source, which is valid JSON."""
    loaded = load_run_options(write_run(RUN), environ={"ROLLCAST_DEBUG": "1"})
    sources = loaded.sources
    assert sources["debug"] == "env ROLLCAST_DEBUG"
    assert sources["behaviors.Ball.hyperparameters.learning_rate"] == "default_settings"
    assert sources["behaviors.Ball.reward_signals.curiosity.network_settings.hidden_units"] == "derived"
    assert sources["behaviors.Ball.self_play.team_change"] == "derived"


def test_values_from_the_secrets_directory_are_masked(write_run: WriteRun, tmp_path: Path) -> None:
    """Secret values are never written."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "ROLLCAST_ADDRESS").write_text("127.0.0.1:5999")
    loaded = load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets)})
    assert loaded.options.rollcast.address == "127.0.0.1:5999"
    assert MASK in to_yaml(effective_document(loaded))
    assert "5999" not in to_yaml(effective_document(loaded))
