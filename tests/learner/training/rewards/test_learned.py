"""Tests the common parts of learned reward signals."""

from __future__ import annotations

import math

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.shared.settings.network import MemorySettings
from learner.shared.settings.rewards import FeatureSettings
from tests.learner.training.rewards.made import SPECS, curiosity, learn, rnd, transitions, weights

NORMALIZED = FeatureSettings(hidden_units=16, normalize=True)
SIGNALS = {"curiosity": curiosity, "rnd": rnd}


@pytest.mark.parametrize("kind", SIGNALS)
def test_a_saved_signal_goes_on_as_if_nothing_had_been(kind: str) -> None:
    """Two steps, a save, a load with other weights and two more steps equal four steps bit for bit."""
    spec = SPECS["continuous"]
    whole, rest = SIGNALS[kind](spec, network_settings=NORMALIZED), SIGNALS[kind](spec, 7, network_settings=NORMALIZED)
    learn(whole, transitions(spec), 2)
    state = whole.state_dict()
    learn(whole, transitions(spec, seed=6), 2)
    rest.load_state_dict(state)
    learn(rest, transitions(spec, seed=6), 2)
    assert all(torch.equal(value, weights(rest)[name]) for name, value in weights(whole).items())
    assert torch.equal(whole.evaluate(transitions(spec)), rest.evaluate(transitions(spec)))


@pytest.mark.parametrize("kind", SIGNALS)
def test_loading_what_was_saved_undoes_a_step_that_went_wrong(kind: str) -> None:
    """A step with non-finite observations is detected, and loading restores the signal."""
    spec = SPECS["discrete"]
    signal = SIGNALS[kind](spec, network_settings=NORMALIZED)
    signal.update(transitions(spec))
    state, before = signal.state_dict(), weights(signal)
    signal.update(transitions(spec, next_observations=[torch.full((12, 4), torch.nan)]))
    assert not bool(signal.is_finite())
    signal.load_state_dict(state)
    assert bool(signal.is_finite())
    assert all(torch.equal(value, before[name]) for name, value in weights(signal).items())
    assert signal.statistics() == {}
    signal.update(transitions(spec))
    assert all(math.isfinite(value) for value in signal.statistics().values())


def test_the_state_of_another_network_is_refused() -> None:
    """The state of a wider or normalizing network is refused with the parameter's name."""
    spec = SPECS["discrete"]
    state = rnd(spec).state_dict()
    for settings in (FeatureSettings(hidden_units=24), NORMALIZED):
        with pytest.raises(ValueError, match="in the saved state, but"):
            rnd(spec, network_settings=settings).load_state_dict(state)


def test_statistics_are_means_since_the_last_look() -> None:
    """Statistics are means of the losses since the last report, and absent without steps."""
    spec = SPECS["discrete"]
    signal = rnd(spec)
    assert signal.statistics() == {}
    losses = []
    for seed in range(3):
        losses.append(signal.loss(transitions(spec, seed=seed))[0].item())
        signal.update(transitions(spec, seed=seed))
    assert signal.statistics()["Losses/RND Loss"] == pytest.approx(sum(losses) / 3)
    assert signal.statistics() == {}


def test_both_networks_see_normalized_observations() -> None:
    """With ``normalize`` target and predictor see observations with running mean and deviation."""
    spec = SPECS["discrete"]
    signal = rnd(spec, network_settings=NORMALIZED)
    seen = [transitions(spec, 500, seed, next_observations=[5 + 0.01 * torch.randn(500, 4)]) for seed in range(2)]
    for each in seen:
        signal.update(each)
    rows = torch.cat([each.next_observations[0] for each in seen]).double()
    for body in (signal.network.target, signal.network.predictor):
        normalizer = body.encoder.normalizing[0].normalizer
        assert normalizer is not None
        torch.testing.assert_close(normalizer.mean.double(), rows.sum(0) / 1001, rtol=1e-5, atol=1e-6)
        assert (normalizer(rows[:100].float()).abs() < 1).all()


def test_observations_that_are_not_finite_leave_the_normalizer() -> None:
    """Non-finite observations do not change the normalizer."""
    spec = SPECS["discrete"]
    signal = rnd(spec, network_settings=NORMALIZED)
    signal.update(transitions(spec))
    normalizer = signal.network.target.encoder.normalizing[0].normalizer
    assert normalizer is not None
    before = normalizer.mean.clone()
    broken = transitions(spec).next_observations[0].clone()
    broken[3, 1] = torch.inf
    signal.update(transitions(spec, next_observations=[broken]))
    assert torch.equal(normalizer.mean, before)


def test_a_memory_is_left_out() -> None:
    """A memory block in a signal's network is ignored."""
    settings = FeatureSettings(hidden_units=16, memory=MemorySettings())
    assert weights(rnd(SPECS["discrete"], network_settings=settings)).keys() == weights(rnd(SPECS["discrete"])).keys()


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
@pytest.mark.parametrize("kind", SIGNALS)
def test_every_behavior_can_have_it(kind: str, spec: BehaviorSpec) -> None:
    """For every behavior two steps change every learned parameter and stay finite."""
    signal = SIGNALS[kind](spec)
    before = {name: value.clone() for name, value in signal.network.named_parameters() if value.requires_grad}
    learn(signal, transitions(spec), 2)
    after = dict(signal.network.named_parameters())
    assert not [name for name, value in before.items() if torch.equal(value, after[name])]
    assert bool(signal.is_finite())
    assert signal.evaluate(transitions(spec)).isfinite().all()
    losses = {"curiosity": {"Curiosity Forward Loss", "Curiosity Inverse Loss"}, "rnd": {"RND Loss"}}
    assert signal.statistics().keys() == {f"Losses/{name}" for name in losses[kind]}
