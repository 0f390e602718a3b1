"""The scale of value heads, alone and in every trainer of this family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from learner.training.networks.heads import ValueHead
from learner.training.networks.initializers import Initializer
from learner.training.optimizers.reduce import SingleLearner
from learner.training.trainers.actor_critic.value_scale import HISTORY_STEPS, ValueScale
from tests.learner.training.trainers.segments import experience_of
from tests.learner.training.trainers.started import KINDS, feed, make, make_kind
from tests.learner.training.trainers.synthetic import SyntheticActor

SCALES = (1e-3, 1.0, 1e4)
CURIOUS = {"extrinsic": {"strength": 100.0}, "curiosity": {"network_settings": {"hidden_units": 4}}}


def _head(signals: int = 2) -> ValueHead:
    return ValueHead(8, signals, Initializer("orthogonal", torch.Generator().manual_seed(3)))


def _scale(head: ValueHead, *, is_on: bool = True) -> ValueScale:
    return ValueScale(head, SingleLearner(), torch.device("cpu"), is_on=is_on)


def _targets(seed: int, mean: float, std: float, steps: int = 500) -> Tensor:
    """Targets ``[N, 2]``; those of the second signal are a hundredth."""
    rows = np.random.default_rng(seed).normal(mean, std, (steps, 2)) * [1.0, 0.01]
    return torch.from_numpy(rows)


def test_the_values_stay_when_the_scale_changes() -> None:
    """To the precision of float32, whatever the moments become; outputs and targets are then of the size of 1."""
    head, hidden = _head(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    scale = _scale(head)
    for seed, (mean, std) in enumerate([(-900.0, 300.0), (5.0, 0.1), (0.0, 0.0), (1e5, 2e4)]):
        before = scale.values(head(hidden)).detach()
        targets = _targets(seed, mean, std)
        scale.merge(targets)
        after = scale.values(head(hidden)).detach()
        size = float(torch.stack((before.abs().max(), scale.scale.max())).max())
        assert float((after - before).abs().max()) < 1e-5 * size


def test_targets_of_the_first_update_have_a_root_mean_square_of_1() -> None:
    """Nothing of the moments with which the scale begins is left, and each signal has its own."""
    scale = _scale(_head())
    targets = _targets(1, -900.0, 300.0)
    scale.merge(targets)
    found = scale.normalized(targets)
    np.testing.assert_allclose(found.square().mean(0).numpy(), 1.0, rtol=1e-9)
    np.testing.assert_allclose(scale.values(found).numpy(), targets.numpy(), rtol=1e-9)


def test_the_moments_are_those_of_all_targets_until_the_past_is_long() -> None:
    """They merge as one; beyond a length the past counts for no more than that."""
    scale = _scale(_head())
    parts = [_targets(1, -900.0, 300.0), _targets(2, 50.0, 4.0, 700)]
    for part in parts:
        scale.merge(part)
    whole = torch.cat(parts)
    np.testing.assert_allclose(scale.scale.numpy(), whole.square().mean(0).sqrt().numpy(), rtol=1e-9)
    deviations = whole.std(0, correction=0)
    np.testing.assert_allclose(float(scale.of_advantages()), float(deviations.square().mean().sqrt()), rtol=1e-9)
    for _ in range(12):
        scale.merge(_targets(3, 2.0, 0.5, HISTORY_STEPS))
    assert float(scale.scale[0]) < 20.0  # 560 if the past counted whole
    assert int(scale.state_dict()["count"]) == 2 * HISTORY_STEPS


def test_constant_targets_have_a_least_deviation() -> None:
    """Rewards that are always 0 divide nothing by 0."""
    scale = _scale(_head())
    scale.merge(torch.zeros(50, 2, dtype=torch.float64))
    assert scale.scale.tolist() == [1e-4, 1e-4]
    assert float(scale.of_advantages()) == pytest.approx(1e-4)


def test_targets_that_are_not_finite_change_nothing() -> None:
    """One such row among many is enough."""
    head = _head()
    scale = _scale(head)
    for _ in range(2):
        before = {name: value.clone() for name, value in (head.state_dict() | scale.state_dict()).items()}
        broken = _targets(1, 0.0, 1.0)
        broken[7, 0] = torch.inf
        scale.merge(broken)
        after = head.state_dict() | scale.state_dict()
        assert all(torch.equal(value, before[name]) for name, value in after.items())
        scale.merge(_targets(2, 5.0, 2.0))


def test_a_head_without_a_scale_takes_in_that_of_a_checkpoint() -> None:
    """Its values stay if the key is turned off, and also if it is turned on for a head that had none."""
    head, hidden = _head(), torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    scale = _scale(head)
    scale.merge(_targets(1, -900.0, 300.0))
    expected, state = scale.values(head(hidden)).detach(), scale.state_dict()
    off = _scale(head, is_on=False)
    off.load_state_dict(state)
    assert off.scale.tolist() == [1.0, 1.0]
    np.testing.assert_allclose(head(hidden).detach().numpy(), expected.numpy(), atol=1e-3)
    on = _scale(head)
    on.merge(_targets(1, 7.0, 2.0))
    on.load_state_dict(off.state_dict())
    assert on.scale.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("name", KINDS)
def test_learning_does_not_depend_on_the_scale_of_rewards(name: str) -> None:
    """Policies after a few updates are alike for rewards of a thousandth, one and ten thousand.

    Without a scale they differ by the critic's part in the advantages, and in impala by the size of the policy's steps.
    """
    means: dict[bool, list[Tensor]] = {True: [], False: []}
    for normalize_values, found in means.items():
        for strength in SCALES:
            rewards = {"extrinsic": {"strength": strength}}
            hyper = {"normalize_values": normalize_values}
            bench, trainer = make_kind(KINDS[name], name, hyper=hyper, reward_signals=rewards)
            with torch.no_grad():  # what the critic begins with is of no scale
                trainer.network.value_head.values.weight.zero_()
            feed(bench, SyntheticActor(bench), 4, trainer)
            gaussian = trainer.policy.gaussian
            assert gaussian is not None
            found.append(gaussian.mean.weight.detach())
    spread = {on: max(float((each - found[1]).abs().max()) for each in found) for on, found in means.items()}
    assert spread[True] < 1e-3
    assert spread[False] > 3 * spread[True]


def test_strengths_weigh_signals_as_without_a_scale() -> None:
    """Advantages are of the rewards, not of each signal's own scale."""
    sources = []
    for normalize_values in (False, True):
        bench, trainer = make(hyper={"normalize_values": normalize_values}, reward_signals=CURIOUS)
        bench.put(SyntheticActor(bench).chunk([20] * 4))
        trainer.collect()
        sources.append({name: source.values for name, source in experience_of(trainer).sources.items()})
    np.testing.assert_allclose(sources[0]["advantage"].numpy(), sources[1]["advantage"].numpy(), rtol=1e-5)
    assert float(sources[0]["returns"].std(0)[0]) > 10.0
    assert sources[1]["returns"].square().mean(0).tolist() == pytest.approx([1.0, 1.0], rel=1e-4)
