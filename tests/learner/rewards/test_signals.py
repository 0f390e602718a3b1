"""Reward signals."""

from __future__ import annotations

import pytest
import torch

from learner.exits import ExitCode, UserError
from learner.rewards.signals import build_signals
from learner.settings.rewards import CuriositySettings, ExtrinsicSettings, RewardSignals


def test_extrinsic_is_the_reward_times_its_strength() -> None:
    """The environment's reward, scaled, in float64."""
    (signal,) = build_signals(RewardSignals(extrinsic=ExtrinsicSettings(gamma=0.9, strength=2.0)))
    found = signal.evaluate({"reward": torch.tensor([1.0, -0.5])})
    assert found.tolist() == [2.0, -1.0]
    assert found.dtype == torch.float64
    assert (signal.name, signal.gamma, signal.ignores_ends) == ("extrinsic", 0.9, False)


@pytest.mark.parametrize("signals", [RewardSignals(curiosity=CuriositySettings()), RewardSignals()])
def test_what_cannot_be_learned_from_is_refused(signals: RewardSignals) -> None:
    """A signal that does not exist yet, or none at all, is an error that says what to change."""
    with pytest.raises(UserError, match=r"remove it|add extrinsic") as caught:
        build_signals(signals)
    assert caught.value.exit_code is ExitCode.RUN_FILE
