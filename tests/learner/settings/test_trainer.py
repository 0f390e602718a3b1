"""Tests that a behavior's settings have ML-Agents' keys, defaults and rules."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.settings.hyperparameters import PPOHyperparameters
from learner.settings.network import NetworkSettings
from learner.settings.trainer import SelfPlaySettings, TrainerSettings


def test_the_defaults_are_those_of_mlagents() -> None:
    """An empty behavior is ML-Agents' default PPO."""
    settings = TrainerSettings()
    hyperparameters = settings.hyperparameters
    assert isinstance(hyperparameters, PPOHyperparameters)
    assert (settings.trainer_type, settings.max_steps, settings.time_horizon) == ("ppo", 500000, 64)
    assert (settings.keep_checkpoints, settings.checkpoint_interval, settings.summary_freq) == (5, 500000, 50000)
    assert (hyperparameters.batch_size, hyperparameters.buffer_size, hyperparameters.num_epoch) == (1024, 10240, 3)
    assert (hyperparameters.beta, hyperparameters.epsilon, hyperparameters.lambd) == (5e-3, 0.2, 0.95)
    assert list(settings.reward_signals.active()) == ["extrinsic"]
    assert not settings.threaded


def test_rollcasts_own_keys_have_defaults() -> None:
    """Rollcast's own keys default to ML-Agents' behavior, except for the networks."""
    hyperparameters = PPOHyperparameters()
    assert (hyperparameters.max_grad_norm, hyperparameters.ratio, hyperparameters.adam_epsilon) == (
        None,
        "per_action",
        1e-8,
    )
    assert (NetworkSettings().activation, NetworkSettings().initialization) == ("tanh", "orthogonal")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({}, ("linear", "linear", "linear")),
        ({"learning_rate_schedule": "constant"}, ("constant", "constant", "constant")),
        ({"learning_rate_schedule": "constant", "beta_schedule": "linear"}, ("constant", "linear", "constant")),
        ({"beta_schedule": "constant"}, ("linear", "constant", "linear")),
    ],
)
def test_absent_schedules_copy_that_of_the_learning_rate(
    written: dict[str, object], expected: tuple[str, str, str]
) -> None:
    """Schedules of beta and epsilon default to the learning rate's."""
    settings = PPOHyperparameters.model_validate(written)
    assert expected == (settings.learning_rate_schedule, settings.beta_schedule, settings.epsilon_schedule)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"even_checkpoints": True, "max_steps": 1000, "keep_checkpoints": 3}, 333),
        ({"even_checkpoints": True, "max_steps": 1000, "keep_checkpoints": 0}, 500000),
        ({"even_checkpoints": True, "max_steps": 2, "keep_checkpoints": 5}, 1),
        ({"checkpoint_interval": "2e3"}, 2000),
    ],
)
def test_even_checkpoints_spread_over_the_run(written: dict[str, object], expected: int) -> None:
    """even_checkpoints divides max_steps by keep_checkpoints."""
    assert expected == TrainerSettings.model_validate(written).checkpoint_interval


def test_team_change_is_five_times_save_steps() -> None:
    """The default of team_change is five times save_steps."""
    assert SelfPlaySettings(save_steps=100).team_change == 500
    assert SelfPlaySettings().team_change == 100000


def test_an_empty_memory_turns_it_on() -> None:
    """`memory: {}` is a memory of default size."""
    memory = NetworkSettings.model_validate({"memory": {}}).memory
    assert memory is not None
    assert (memory.sequence_length, memory.memory_size) == (64, 128)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"network_settings": {"memory": {"memory_size": 127}}}, "must be an even number"),
        ({"network_settings": {"memory": {}}, "hyperparameters": {"batch_size": 32}}, "sequence_length is 64"),
        ({"trainer_type": "dqn"}, "there is no trainer 'dqn'; the trainers are appo, impala, poca, ppo, sac"),
        ({"hyperparameters": {"batch_size": 0}}, "greater than or equal to 1"),
        ({"hyperparameters": {"learning_rate_schedule": "step"}}, "'linear', 'constant', 'cosine' or 'adaptive'"),
        ({"hyperparameters": {"lambd": 1.5}}, "less than or equal to 1"),
        ({"max_steps": True}, "finite number"),
        ({"reward_signals": {"extrinsic": None}}, "write {}"),
        ({"reward_signals": {"gail": {}}}, "Field required"),
        ({"hyperparameters": {"ratio": "none"}}, "'per_action' or 'joint'"),
        ({"network_settings": {"hidden_units": [64, 0]}}, "greater than or equal to 1"),
        ({"network_settings": {"hidden_units": []}}, "must have 1 to 1000 widths"),
        (
            {"network_settings": {"hidden_units": [64], "num_layers": 2}},
            "hidden_units has 1 widths: take num_layers out",
        ),
        (
            {"hyperparameters": {"learning_rate_schedule": "adaptive", "learning_rate_warmup": 5}},
            "take one of them out",
        ),
        ({"network_settings": {"log_std_init": 2.5}}, "less than or equal to 2"),
        (
            {"network_settings": {"critic_only": ["goal"]}, "hyperparameters": {"shared_critic": True}},
            "set shared_critic to false",
        ),
        (
            {"reward_signals": {"rnd": {"network_settings": {"critic_only": ["goal"]}}}},
            "a reward signal reads all observations",
        ),
        ({"trainer_type": "sac", "network_settings": {"std": "free"}}, "of sac depends on the state: take it out"),
    ],
)
def test_settings_that_cannot_work_are_refused(written: dict[str, object], message: str) -> None:
    """Each rule has a message that says what is wrong."""
    with pytest.raises(ValidationError, match=message.replace("{", r"\{").replace("(", r"\(")):
        TrainerSettings.model_validate(written)


def test_a_list_of_widths_counts_the_layers() -> None:
    """A list replaces both keys, in any notation of whole numbers; one width applies to all layers."""
    listed = NetworkSettings.model_validate({"hidden_units": [256, "1e2"]})
    assert (listed.num_layers, listed.widths) == (2, (256, 100))
    again = NetworkSettings.model_validate(listed.model_dump(mode="json"))
    assert again == listed
    assert NetworkSettings(hidden_units=32, num_layers=3).widths == (32, 32, 32)


def test_writing_reward_signals_without_extrinsic_leaves_it_out() -> None:
    """The environment's reward is used only if it is listed."""
    settings = TrainerSettings.model_validate({"reward_signals": {"rnd": {}}})
    assert list(settings.reward_signals.active()) == ["rnd"]
    assert settings.reward_signals.rnd is not None
    assert settings.reward_signals.rnd.learning_rate == 1e-4


@pytest.mark.parametrize(("network", "expected"), [(None, 32), ({"num_layers": 1}, 128)])
def test_encoding_size_is_the_width_of_an_unwritten_network(network: object, expected: int) -> None:
    """encoding_size sets the width only if network_settings is absent."""
    written: dict[str, object] = {"encoding_size": 32}
    if network is not None:
        written["network_settings"] = network
    signal = TrainerSettings.model_validate({"reward_signals": {"curiosity": written}}).reward_signals.curiosity
    assert signal is not None
    assert expected == signal.network_settings.hidden_units


def test_settings_are_frozen() -> None:
    """Settings are immutable."""
    with pytest.raises(ValidationError, match="frozen"):
        TrainerSettings().max_steps = 3
