"""All signals of a behavior as one."""

from __future__ import annotations

import pytest
import torch

from learner.rewards.signal_set import SignalSet
from learner.rewards.signals import LearnedSignal, build_signals
from learner.settings.network import NetworkSettings
from learner.settings.rewards import CuriositySettings, ExtrinsicSettings, RewardSignals, RNDSettings
from tests.learner.rewards.made import CPU, SMALL, SPECS, transitions

SETTINGS = RewardSignals(
    extrinsic=ExtrinsicSettings(gamma=0.9, strength=-2.0),
    curiosity=CuriositySettings(gamma=0.8, strength=0.5, network_settings=SMALL),
    rnd=RNDSettings(gamma=0.7, strength=0.1, network_settings=SMALL),
)


def make(settings: RewardSignals = SETTINGS, seed: int = 1) -> SignalSet:
    """The signals of a behavior with three choices."""
    return SignalSet(build_signals(settings, SPECS["discrete"], torch.Generator().manual_seed(seed), CPU), CPU)


def test_each_stream_has_its_own_discount_and_ends() -> None:
    """In the order extrinsic, curiosity, rnd; those that explore look beyond the end of an episode."""
    signals = make()
    assert signals.names == ("extrinsic", "curiosity", "rnd")
    assert signals.gamma.tolist() == [0.9, 0.8, 0.7]
    assert signals.ignores_ends.tolist() == [False, True, True]
    assert (len(signals), signals.learns, signals.needs_observations) == (3, True, True)


def test_rewards_stand_side_by_side() -> None:
    """One column a signal, each with its strength; a negative strength turns a signal round."""
    signals, seen = make(), transitions(SPECS["discrete"])
    signals.update(seen)
    rewards = signals.evaluate(seen)
    assert rewards.shape == (12, 3)
    assert rewards.dtype == torch.float64
    assert torch.equal(rewards[:, 0], -2.0 * seen.reward.double())
    assert (rewards[:, 1:] > 0).all()
    assert not rewards.requires_grad


def test_one_step_teaches_all_and_all_report() -> None:
    """Every signal that learns takes a step, and reports under ML-Agents' names."""
    signals = make()
    signals.update(transitions(SPECS["discrete"]))
    names = {"Losses/Curiosity Forward Loss", "Losses/Curiosity Inverse Loss", "Losses/RND Loss"}
    assert signals.statistics().keys() == names
    assert bool(signals.is_finite())
    signals.update(transitions(SPECS["discrete"], next_observations=[torch.full((12, 4), torch.nan)]))
    assert not bool(signals.is_finite())


def test_they_are_saved_and_loaded_together() -> None:
    """A set with other weights continues with those that were saved."""
    first, second, seen = make(), make(seed=2), transitions(SPECS["discrete"])
    first.update(seen)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.evaluate(seen), second.evaluate(seen))


def test_a_state_without_a_signal_is_refused() -> None:
    """A signal that was added to the run file has no saved state; the message names it."""
    without = make(RewardSignals(extrinsic=ExtrinsicSettings()))
    with pytest.raises(ValueError, match="curiosity is missing"):
        make().load_state_dict(without.state_dict())


def test_initial_weights_come_from_the_generator() -> None:
    """Equal seeds give equal signals; no global random state is read."""
    seen = transitions(SPECS["discrete"])
    torch.manual_seed(1)
    first = make()
    torch.manual_seed(2)
    second = make()
    for signals in (first, second):
        signals.update(seen)
    assert torch.equal(first.evaluate(seen), second.evaluate(seen))


def test_a_signal_alone_needs_no_other() -> None:
    """Without extrinsic the environment's reward is not used."""
    settings = RewardSignals(rnd=RNDSettings(network_settings=NetworkSettings(hidden_units=8)))
    (signal,) = build_signals(settings, SPECS["goal"], torch.Generator(), CPU)
    assert isinstance(signal, LearnedSignal)
    assert signal.name == "rnd"
