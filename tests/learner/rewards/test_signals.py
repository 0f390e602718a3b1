"""Reward signals."""

from __future__ import annotations

import pytest
import torch

from learner.exits import ExitCode, UserError
from learner.rewards.signal_set import SignalSet
from learner.rewards.signals import RewardSignal, build_signals
from learner.rewards.transitions import Transitions
from learner.settings.rewards import ExtrinsicSettings, RewardSignals
from tests.learner.trainers.synthetic import BRANCHES

CPU = torch.device("cpu")


def build(settings: RewardSignals) -> list[RewardSignal]:
    """Builds signals for a small behavior."""
    return build_signals(settings, BRANCHES, torch.Generator(), CPU)


def test_extrinsic_is_the_reward_times_its_strength() -> None:
    """The environment's reward, scaled, in float64; nothing of it learns."""
    (signal,) = build(RewardSignals(extrinsic=ExtrinsicSettings(gamma=0.9, strength=2.0)))
    found = signal.evaluate(Transitions(torch.tensor([1.0, -0.5]), torch.zeros(2)))
    assert found.tolist() == [2.0, -1.0]
    assert found.dtype == torch.float64
    assert (signal.name, signal.gamma, signal.ignores_ends) == ("extrinsic", 0.9, False)
    signals = SignalSet([signal], CPU)
    assert not signals.learns
    assert not signals.needs_observations
    assert signals.state_dict() == {}


def test_nothing_to_learn_from_is_refused() -> None:
    """No signal at all is an error that says what to change."""
    with pytest.raises(UserError, match="add extrinsic") as caught:
        build(RewardSignals())
    assert caught.value.exit_code is ExitCode.RUN_FILE
