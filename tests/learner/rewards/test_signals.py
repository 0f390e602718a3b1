"""Reward signals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from learner.exits import ExitCode, UserError
from learner.rewards.signal_set import SignalSet
from learner.rewards.signals import RewardSignal, build_signals
from learner.rewards.transitions import Transitions
from learner.settings.rewards import ExtrinsicSettings, RewardSignals
from tests.learner.installed import install
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


def installed(site: Path, name: str, module: str) -> None:
    """Writes a package that declares each lower-case name below as a reward signal of the same name."""
    names = ("bold", "plain")
    install(site, name, module, {"rollcast.reward_signals": {each: f"{name}:{each}" for each in names}})


EXTENDS = """
from learner.settings.base import Real
from learner.settings.rewards import CuriositySettings, ExtrinsicSettings

class BoldSettings(CuriositySettings):
    bonus: Real = 3.0

class PlainSettings(ExtrinsicSettings):
    pass

class Constant:
    ignores_ends = False
    needs_observations = False

    def __init__(self, name, settings):
        self.name, self.gamma, self._value = name, settings.gamma, getattr(settings, "bonus", 1.0)

    def evaluate(self, transitions):
        return transitions.reward * 0 + self._value

class Bold:
    settings_model = BoldSettings
    def __call__(self, settings, setup):
        return Constant("bold", settings)

class Plain:
    settings_model = PlainSettings
    def __call__(self, settings, setup):
        return Constant("plain", settings)

bold, plain = Bold(), Plain()
"""


def test_settings_that_extend_ours_leave_a_package_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a package makes is used, whatever its settings extend; it stands beside the signal it extends."""
    installed(tmp_path / "site", "extends_ours_of_a_test", EXTENDS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    raw: dict[str, Any] = {
        "extrinsic": {},
        "curiosity": {"strength": 0.1},
        "bold": {"gamma": 0.5, "bonus": 7},
        "plain": {},
    }
    signals = build(RewardSignals.model_for(raw).model_validate(raw))
    assert [signal.name for signal in signals] == ["extrinsic", "curiosity", "bold", "plain"]
    assert [type(signal).__name__ for signal in signals[2:]] == ["Constant", "Constant"]
    assert signals[2].gamma == 0.5
    assert signals[2].evaluate(Transitions(torch.zeros(2), torch.zeros(2))).tolist() == [7.0, 7.0]
