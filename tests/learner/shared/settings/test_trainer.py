"""Tests that a behavior's settings have ML-Agents' keys, defaults and rules."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.trainer import TrainerSettings


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"hyperparameters": {"learning_rate_schedule": "step"}}, "'linear', 'constant', 'cosine' or 'adaptive'"),
        ({"hyperparameters": {"epsilon": -1}}, "greater than or equal to 0"),
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
