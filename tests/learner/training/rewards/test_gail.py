"""Tests GAIL."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from rollcast.specs import BehaviorSpec

from learner.shared.settings.network import NetworkSettings
from learner.shared.settings.rewards import GAILSettings
from learner.training.rewards.gail import BETA_STEP, INFORMATION_NATS, GAILReward
from tests.learner.training.networks.specs import behavior, vector
from tests.learner.training.rewards.made import SMALL, SPECS, learn, setup, transitions, weights
from tests.learner.training.rewards.recorded import demonstrate

STATISTICS = {
    "Losses/GAIL Loss",
    "Policy/GAIL Policy Estimate",
    "Policy/GAIL Expert Estimate",
    "Policy/GAIL Grad Mag Loss",
}


def gail(path: Path, spec: BehaviorSpec, seed: int = 1, **changes: Any) -> GAILReward:
    """Returns a small GAIL with random demonstrations by default."""
    file = path / "x.demo"
    if not file.exists():
        demonstrate(file, spec, [20, 20])
    settings = GAILSettings(**{"demo_path": str(file), "network_settings": SMALL, "learning_rate": 3e-3, **changes})
    return GAILReward(settings, setup(spec, seed))


@pytest.mark.parametrize("vail", [False, True])
@pytest.mark.parametrize("actions", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_every_kind_of_behavior(tmp_path: Path, name: str, *, actions: bool, vail: bool) -> None:
    """Every parameter changes and stays finite for every kind of behavior."""
    spec = SPECS[name]
    signal = gail(tmp_path, spec, use_actions=actions, use_vail=vail)
    before = weights(signal)
    learn(signal, transitions(spec), 3)
    assert bool(signal.is_finite())
    moved = {name for name, value in weights(signal).items() if not torch.equal(value, before[name])}
    assert moved >= {name for name, _ in signal.network.named_parameters()}
    rewards = signal.evaluate(transitions(spec))
    assert rewards.shape == (12,)
    assert bool((rewards >= 0).all())
    assert set(signal.statistics()) == STATISTICS | ({"Losses/GAIL KL Loss", "Policy/GAIL Beta"} if vail else set())


def test_the_reward_is_the_papers(tmp_path: Path) -> None:
    """The reward is -ln(1 - D (1 - 1e-7)) times strength, and finite for D = 1."""
    spec = behavior(vector(), branches=(3,))
    signal = gail(tmp_path, spec, strength=0.5)
    own = transitions(spec)
    with torch.no_grad():
        scores, _ = signal.network.scores(signal.network.inputs(own))
        likely = torch.sigmoid(scores.double())
        assert torch.allclose(signal.evaluate(own), -0.5 * torch.log(1 - likely * (1 - 1e-7)))
        signal.network.score.bias.fill_(1e9)
    assert signal.evaluate(own).tolist() == pytest.approx([0.5 * -math.log(1e-7)] * 12, rel=1e-3)


@pytest.mark.parametrize("vail", [False, True])
def test_the_loss_is_a_textbooks(tmp_path: Path, vail: bool) -> None:
    """Cross entropy, penalty and divergence equal those of the formulas, for equal draws."""
    spec = behavior(vector(), continuous=2)
    signal = gail(tmp_path, spec, use_actions=True, use_vail=vail)
    if vail:
        signal.network.beta.fill_(0.7)
    own = transitions(spec)
    state = signal._random.get_state()
    loss, _ = signal.loss(own)
    signal._random.set_state(state)
    network = signal.network
    expert = signal._buffer.drawn(12, signal._random)
    x_own, x_expert = network.inputs(own), network.inputs(expert)

    def score(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = network.layers(x)
        if network.mean is None or network.sigma is None:
            return network.score(hidden)[:, 0], hidden
        mu = network.mean(hidden)
        z = mu + network.sigma * torch.randn(mu.shape, generator=signal._random)
        return network.score(z)[:, 0], mu

    scores, means = score(torch.cat((x_own, x_expert)))
    likely = torch.sigmoid(scores.double())
    expected = -torch.log(1 - likely[:12]).mean() - torch.log(likely[12:]).mean()
    share = torch.rand(12, 1, generator=signal._random)
    between = (share * x_own + (1 - share) * x_expert).detach().requires_grad_()
    (slope,) = torch.autograd.grad(score(between)[0].sum(), between)
    expected = expected + 10 * (slope.norm(dim=1) - 1).square().mean()
    if vail and network.sigma is not None:
        divergence = torch.distributions.kl_divergence(
            torch.distributions.Normal(means, network.sigma), torch.distributions.Normal(0.0, 1.0)
        )
        expected = expected + 0.7 * (divergence.sum(1).mean() - 0.5)
    assert loss.item() == pytest.approx(expected.item(), rel=1e-4)


def test_beta_follows_the_information(tmp_path: Path) -> None:
    """Beta grows by 5e-4 times the excess information and never falls below zero."""
    spec = behavior(vector(), branches=(3,))
    signal = gail(tmp_path, spec, use_vail=True)
    signal.update(transitions(spec))
    first = signal.statistics()
    expected = max(0.0, BETA_STEP * (first["Losses/GAIL KL Loss"] - INFORMATION_NATS))
    assert float(signal.network.beta) == pytest.approx(expected, abs=1e-7)
    assert signal.network.sigma is not None
    with torch.no_grad():
        signal.network.sigma.fill_(0.01)  # passes all information
    signal.update(transitions(spec))
    assert float(signal.network.beta) > 0.01


def test_a_saved_signal_goes_on_as_if_nothing_had_been(tmp_path: Path) -> None:
    """Two steps, a save, a load with another seed and two more steps equal four steps bit for bit."""
    spec = SPECS["hybrid"]
    network = NetworkSettings(hidden_units=16, normalize=True)
    whole, rest = (gail(tmp_path, spec, seed, use_vail=True, network_settings=network) for seed in (1, 7))
    learn(whole, transitions(spec), 2)
    state = whole.state_dict()
    learn(whole, transitions(spec, seed=6), 2)
    rest.load_state_dict(state)
    learn(rest, transitions(spec, seed=6), 2)
    assert all(torch.equal(value, weights(rest)[name]) for name, value in weights(whole).items())
