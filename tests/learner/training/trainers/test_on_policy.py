"""Tests the limits for actors of on-policy trainers."""

from __future__ import annotations

import pytest

from learner.shared.settings.hyperparameters import PPOHyperparameters
from learner.shared.settings.trainer import TrainerSettings
from learner.training.trainers.base import ahead_limit_steps


@pytest.mark.parametrize("threaded", [False, True])
@pytest.mark.parametrize(("buffer_size", "time_horizon"), [(1, 1), (2048, 64), (100, 1000)])
def test_the_limit_is_never_reached_without_an_update(threaded: bool, buffer_size: int, time_horizon: int) -> None:
    """An update needs buffer_size steps, and credit reaches further; otherwise both sides would wait."""
    settings = TrainerSettings(
        hyperparameters=PPOHyperparameters(buffer_size=buffer_size), time_horizon=time_horizon, threaded=threaded
    )
    limit = ahead_limit_steps(settings)
    assert buffer_size < limit
    assert limit <= 2 * buffer_size + time_horizon + 1
