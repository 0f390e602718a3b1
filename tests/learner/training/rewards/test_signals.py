"""Tests reward signals."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.rewards import CuriositySettings, ExtrinsicSettings, RewardSignals, RNDSettings
from learner.training.rewards.signals import RewardSignal, SignalSet, build_signals
from learner.training.rewards.transitions import Transitions
from tests.learner.installed import install
from tests.learner.training.rewards.made import CPU, FEATURES, SPECS, transitions
from tests.learner.training.trainers.synthetic import BRANCHES


def build(settings: RewardSignals) -> list[RewardSignal]:
    """Builds signals for a small behavior."""
    return build_signals(settings, BRANCHES, torch.Generator(), CPU)


def test_extrinsic_is_the_reward_times_its_strength() -> None:
    """Extrinsic is the environment's reward times strength in float64."""
    (signal,) = build(RewardSignals(extrinsic=ExtrinsicSettings(gamma=0.9, strength=2.0)))
    found = signal.evaluate(Transitions(torch.tensor([1.0, -0.5]), torch.zeros(2)))
    assert found.tolist() == [2.0, -1.0]
    assert found.dtype == torch.float64
    assert (signal.name, signal.gamma, signal.ignores_ends) == ("extrinsic", 0.9, False)
    signals = SignalSet([signal], CPU)
    assert not signals.learns
    assert not signals.needs_observations
    assert signals.state_dict() == {}


def test_extrinsic_rewards_are_clipped_before_the_strength() -> None:
    """Large ones count as the limit, small ones as they are."""
    (signal,) = build(RewardSignals(extrinsic=ExtrinsicSettings(reward_clip=3.0, strength=2.0)))
    found = signal.evaluate(Transitions(torch.tensor([100.0, -4.0, 0.5]), torch.zeros(3)))
    assert found.tolist() == [6.0, -6.0, 1.0]


def test_nothing_to_learn_from_is_refused() -> None:
    """No signal at all is an error that says what to change."""
    with pytest.raises(UserError, match="add extrinsic") as caught:
        build(RewardSignals())
    assert caught.value.exit_code is ExitCode.RUN_FILE


def installed(site: Path, name: str, module: str, names: Sequence[str] = ("bold",)) -> None:
    """Writes a package that declares names of a module as reward signals of the same names."""
    install(site, name, module, {"rollcast.reward_signals": {each: f"{name}:{each}" for each in names}})


EXTENDS = """
from learner.shared.settings.base import Real
from learner.shared.settings.rewards import CuriositySettings

class BoldSettings(CuriositySettings):
    bonus: Real = 3.0

class Constant:
    ignores_ends = False
    needs_observations = False

    def __init__(self, name, settings):
        self.name, self.gamma, self._value = name, settings.gamma, settings.bonus

    def evaluate(self, transitions):
        return transitions.reward * 0 + self._value

class Bold:
    settings_model = BoldSettings
    def __call__(self, settings, setup):
        return Constant("bold", settings)

bold = Bold()
"""


def test_settings_that_extend_ours_leave_a_package_its_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package's signal is used even if its settings extend a built-in one's."""
    installed(tmp_path / "site", "extends_ours_of_a_test", EXTENDS)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    raw: dict[str, Any] = {
        "extrinsic": {},
        "curiosity": {"strength": 0.1},
        "bold": {"gamma": 0.5, "bonus": 7},
    }
    signals = build(RewardSignals.model_for(raw).model_validate(raw))
    assert [signal.name for signal in signals] == ["extrinsic", "curiosity", "bold"]
    assert signals[2].gamma == 0.5
    assert signals[2].evaluate(Transitions(torch.zeros(2), torch.zeros(2))).tolist() == [7.0, 7.0]


FAULTY = """
import torch

class Signal:
    gamma, ignores_ends, needs_observations = 0.9, False, False
    def __init__(self, name, **changes):
        self.name = name
        self.__dict__.update(changes)
    def evaluate(self, transitions):
        return self.made(transitions.reward) if "made" in self.__dict__ else transitions.reward

class Raising(Signal):
    @property
    def gamma(self):
        raise RuntimeError("no\\ngamma")

def good(settings, setup): return Signal("good")
def posing(settings, setup): return Signal("extrinsic")
def text(settings, setup): return Signal("text", gamma="0.9")
def half(settings, setup): return Signal("half", update=print)
def raising(settings, setup): return Raising("raising")
def wide(settings, setup): return Signal("wide", made=lambda reward: reward[:, None])
def short(settings, setup): return Signal("short", made=lambda reward: reward[:1])
def none(settings, setup): return Signal("none", made=lambda reward: None)
def nan(settings, setup): return Signal("nan", made=lambda reward: reward * float("nan"))
"""
FAULTS = {
    "posing": "has the name 'extrinsic', not the name in the run file",
    "text": "has a gamma of '0.9', not a number from 0 to 1",
    "half": "lacks is_finite, statistics, state_dict, load_state_dict",
    "raising": "RuntimeError: no gamma",
}


@pytest.fixture
def _faulty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = (*FAULTS, "good", "wide", "short", "none", "nan")
    installed(tmp_path / "site", "faulty_signals_of_a_test", FAULTY, names)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def beside_extrinsic(name: str) -> SignalSet:
    """Builds a package's signal in addition to extrinsic."""
    raw: dict[str, Any] = {"extrinsic": {}, name: {}}
    return SignalSet(build(RewardSignals.model_for(raw).model_validate(raw)), CPU)


@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_signal_is_refused(name: str) -> None:
    """An object that is no signal is refused in one line that names the attribute."""
    with pytest.raises(UserError) as caught:
        beside_extrinsic(name)
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert f"reward_signals names {name!r}" in caught.value.message
    assert FAULTS[name] in caught.value.message
    assert "\n" not in caught.value.message


@pytest.mark.usefixtures("_faulty")
@pytest.mark.parametrize(("name", "shown"), [("wide", r"\[3, 1\]"), ("short", r"\[1\]"), ("none", "NoneType")])
def test_rewards_of_another_form_name_their_signal(name: str, shown: str) -> None:
    """A wrong shape of rewards is an error that names the signal."""
    with pytest.raises(UserError, match=rf"reward signal '{name}' returned .*{shown} for 3 steps") as caught:
        beside_extrinsic(name).evaluate(Transitions(torch.zeros(3), torch.zeros(3)))
    assert caught.value.exit_code is ExitCode.TRAINER_FAILED


@pytest.mark.usefixtures("_faulty")
def test_rewards_that_are_not_finite_are_remembered() -> None:
    """Non-finite rewards are attributed to their signal without waiting for the device."""
    good, faulty = beside_extrinsic("good"), beside_extrinsic("nan")
    for signals in (good, faulty):
        signals.evaluate(Transitions(torch.ones(3), torch.zeros(3)))
    assert good.take_faulty() == ()
    assert faulty.take_faulty() == ("nan",)
    assert faulty.take_faulty() == ()


SETTINGS = RewardSignals(
    extrinsic=ExtrinsicSettings(gamma=0.9, strength=-2.0),
    curiosity=CuriositySettings(gamma=0.8, strength=0.5, network_settings=FEATURES),
    rnd=RNDSettings(gamma=0.7, strength=0.1, network_settings=FEATURES),
)


def make(settings: RewardSignals = SETTINGS, seed: int = 1) -> SignalSet:
    """Returns the signals of a behavior with three choices."""
    return SignalSet(build_signals(settings, SPECS["discrete"], torch.Generator().manual_seed(seed), CPU), CPU)


def test_each_stream_has_its_own_discount_and_ends() -> None:
    """Extrinsic, curiosity and rnd each have a discount; exploring signals ignore ends."""
    signals = make()
    assert signals.names == ("extrinsic", "curiosity", "rnd")
    assert signals.gamma.tolist() == [0.9, 0.8, 0.7]
    assert signals.ignores_ends.tolist() == [False, True, True]
    assert (len(signals), signals.learns, signals.needs_observations) == (3, True, True)


def test_rewards_stand_side_by_side() -> None:
    """Each signal is a column with its strength, which may be negative."""
    signals, seen = make(), transitions(SPECS["discrete"])
    signals.update(seen)
    rewards = signals.evaluate(seen)
    assert rewards.shape == (12, 3)
    assert rewards.dtype == torch.float64
    assert torch.equal(rewards[:, 0], -2.0 * seen.reward.double())
    assert (rewards[:, 1:] > 0).all()
    assert not rewards.requires_grad


def test_a_state_without_a_signal_is_refused() -> None:
    """A signal without saved state is an error that names it."""
    without = make(RewardSignals(extrinsic=ExtrinsicSettings()))
    with pytest.raises(ValueError, match="curiosity is missing"):
        make().load_state_dict(without.state_dict())
