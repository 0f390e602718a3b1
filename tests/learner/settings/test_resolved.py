"""The resolved settings have ML-Agents' keys and nesting, and can be read back."""

from __future__ import annotations

import json
from pathlib import Path

from learner.settings.load import load_run_options
from learner.settings.resolved import MASK, effective_document, resolved_mlagents_json, sources_document, to_yaml

from .conftest import WriteRun

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
    "hidden_units": 128,
    "num_layers": 2,
    "vis_encode_type": "simple",
    "memory": None,
    "tower": None,
    "goal_conditioning_type": "hyper",
    "deterministic": False,
    "activation": "tanh",
    "initialization": "orthogonal",
}

BALL = {
    "trainer_type": "ppo",
    "hyperparameters": {
        "batch_size": 1024,
        "buffer_size": 10240,
        "learning_rate": 0.001,
        "learning_rate_schedule": "constant",
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
        "gradient_accumulation": 1,
    },
    "network_settings": {
        **NETWORK,
        "hidden_units": 64,
        "memory": {"sequence_length": 64, "memory_size": 128},
    },
    "reward_signals": {
        "extrinsic": {"gamma": 0.99, "strength": 1.0, "network_settings": NETWORK},
        "curiosity": {
            "gamma": 0.99,
            "strength": 0.02,
            "network_settings": {**NETWORK, "hidden_units": 32},
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
    },
    "behavioral_cloning": None,
}


def test_a_behavior_resolves_to_a_complete_tree(write_run: WriteRun) -> None:
    """Every blank is filled, by the rules of ML-Agents."""
    resolved = resolved_mlagents_json(load_run_options(write_run(RUN)).options)
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
    """configuration.yaml of a run is a run file of the same run."""
    loaded = load_run_options(write_run(RUN))
    written = tmp_path / "configuration.yaml"
    written.write_text(to_yaml(effective_document(loaded)))
    again = load_run_options(written)
    assert again.options == loaded.options
    assert again.warnings == ()


def test_every_value_has_a_source(write_run: WriteRun) -> None:
    """The sources are complete and can be written as JSON."""
    loaded = load_run_options(write_run(RUN), environ={"ROLLCAST_DEBUG": "1"})
    sources = sources_document(loaded)
    assert sources["debug"] == "env ROLLCAST_DEBUG"
    assert sources["behaviors.Ball.hyperparameters.learning_rate"] == "default_settings"
    assert sources["behaviors.Ball.reward_signals.curiosity.network_settings.hidden_units"] == "derived"
    assert sources["behaviors.Ball.self_play.team_change"] == "derived"


def test_values_from_the_secrets_directory_are_masked(write_run: WriteRun, tmp_path: Path) -> None:
    """What came as a secret is written nowhere."""
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "ROLLCAST_ADDRESS").write_text("127.0.0.1:5999")
    loaded = load_run_options(write_run(RUN), environ={"ROLLCAST_SECRETS_DIR": str(secrets)})
    assert loaded.options.rollcast.address == "127.0.0.1:5999"
    assert MASK in to_yaml(effective_document(loaded))
    assert "5999" not in to_yaml(effective_document(loaded))
