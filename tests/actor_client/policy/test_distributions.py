"""Draws and log-probabilities against textbook formulas in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import Squash
from rollcast.transforms import ActionTransform

from actor_client.policy.distributions import (
    Categorical,
    PreparedTransform,
    draw_gaussian,
    gaussian_log_prob,
    log_sum_exp,
    tanh_gaussian_log_prob,
)

FINITE = st.floats(-20, 20, width=32)


def normal_log_density(x: float, mean: float, log_std: float) -> float:
    """Returns the logarithm of the density of a normal distribution."""
    std = math.exp(log_std)
    return -((x - mean) ** 2) / (2 * std**2) - math.log(std * math.sqrt(2 * math.pi))


@settings(deadline=None)
@given(mean=FINITE, log_std=st.floats(-5, 3, width=32), noise=st.floats(-5, 5, width=32))
def test_gaussian_log_prob_is_the_log_density_of_the_rounded_draw(mean: float, log_std: float, noise: float) -> None:
    """The log-probability is that of the recorded, rounded draw."""
    means, log_stds = np.array([[mean]], np.float32), np.array([[log_std]], np.float32)
    raw = draw_gaussian(means, log_stds, np.array([[noise]], np.float32))

    found = gaussian_log_prob(raw, means, log_stds)

    assert raw.dtype == found.dtype == np.float32
    assert found[0, 0] == pytest.approx(normal_log_density(float(raw[0, 0]), mean, log_std), rel=1e-4, abs=1e-4)


@settings(deadline=None)
@given(raw=st.floats(-4, 4, width=32), mean=st.floats(-2, 2, width=32), log_std=st.floats(-2, 1, width=32))
def test_tanh_gaussian_log_prob_has_the_correction(raw: float, mean: float, log_std: float) -> None:
    """The log-probability of tanh(u) includes the derivative of tanh."""
    arrays = [np.array([[value]], np.float32) for value in (raw, mean, log_std)]
    expected = normal_log_density(raw, mean, log_std) - math.log(1 - math.tanh(raw) ** 2)

    assert tanh_gaussian_log_prob(*arrays)[0, 0] == pytest.approx(expected, rel=1e-3, abs=1e-3)


def test_the_mode_of_a_gaussian_is_its_mean() -> None:
    """Without noise the action is the mean, in a new array."""
    mean = np.array([[1.5, -2.0]], np.float32)
    raw = draw_gaussian(mean, np.zeros((1, 2), np.float32), None)

    np.testing.assert_array_equal(mean, raw)
    assert not np.shares_memory(raw, mean)


def reference_log_softmax(logits: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """Returns log-probabilities of one branch in float64, minus infinity for forbidden choices."""
    weights = np.where(allowed, np.exp(logits.astype(np.float64) - logits[allowed].max()), 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(weights / weights.sum()))


@settings(max_examples=50, deadline=None)
@given(
    branches=st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple),
    agents=st.integers(1, 4),
    seed=st.integers(0, 2**32 - 1),
    masked=st.booleans(),
    greedy=st.booleans(),
)
def test_choices_and_log_probs_of_any_branches(
    branches: tuple[int, ...], agents: int, seed: int, masked: bool, greedy: bool
) -> None:
    """Each branch gets an allowed choice and its log-probability; the mode is the most likely one."""
    random = np.random.default_rng(seed)
    size = sum(branches)
    logits = random.normal(scale=5, size=(agents, size)).astype(np.float32)
    allowed = np.ones((agents, size), bool)
    if masked:
        allowed = random.random((agents, size)) < 0.4
        for begin in np.cumsum((0, *branches[:-1])):
            allowed[:, begin] |= True
    gumbel = None if greedy else random.gumbel(size=(agents, size)).astype(np.float32)

    masks = allowed.astype(np.uint8) if masked else None
    choices, log_prob = Categorical(branches, normalized=False).choose(logits, masks, gumbel)

    assert choices.shape == log_prob.shape == (agents, len(branches))
    assert (str(choices.dtype), str(log_prob.dtype)) == ("int32", "float32")
    begin = 0
    for branch, count in enumerate(branches):
        for agent in range(agents):
            part, free = logits[agent, begin : begin + count], allowed[agent, begin : begin + count]
            choice = choices[agent, branch]
            assert free[choice]
            expected = reference_log_softmax(part, free)
            assert log_prob[agent, branch] == pytest.approx(expected[choice], abs=1e-5)
            if greedy:
                assert expected[choice] == expected.max()
        begin += count


def test_draws_have_the_frequencies_of_the_distribution() -> None:
    """Of 200,000 draws, each frequency is within four standard deviations of its probability."""
    draws = 200_000
    probabilities = np.array([0.05, 0.5, 0.15, 0.3])
    logits = np.log(probabilities).astype(np.float32)[None].repeat(draws, axis=0)
    gumbel = np.random.default_rng(7).gumbel(size=(draws, 4)).astype(np.float32)

    choices, _ = Categorical((4,), normalized=True).choose(logits, None, gumbel)

    frequencies = np.bincount(choices[:, 0], minlength=4) / draws
    tolerance = 4 * np.sqrt(probabilities * (1 - probabilities) / draws)
    assert (np.abs(frequencies - probabilities) < tolerance).all()


@pytest.mark.parametrize("greedy", [False, True])
def test_a_forbidden_choice_is_never_picked(greedy: bool) -> None:
    """A forbidden choice is never picked, even with the largest logit or with NaN."""
    random = np.random.default_rng(1)
    masks = np.tile(np.array([[0, 1, 0]], np.uint8), (1000, 1))
    gumbel = None if greedy else random.gumbel(size=(1000, 3)).astype(np.float32)
    for row in ([50.0, -50.0, 50.0], [0.0, -1e8, 0.0], [0.0, -np.inf, 0.0], [np.inf, 0.0, np.nan]):
        logits = np.tile(np.array([row], np.float32), (1000, 1))
        choices, _ = Categorical((3,), normalized=True).choose(logits, masks, gumbel)
        assert set(choices[:, 0].tolist()) == {1} or row[1] == -np.inf


def test_log_sum_exp_does_not_overflow() -> None:
    """Large logits do not overflow; choices without probability add nothing."""
    logits = np.array([[1000.0, 1000.0], [-1000.0, -np.inf]], np.float32)

    np.testing.assert_allclose(log_sum_exp(logits), [1000 + math.log(2), -1000], rtol=1e-6)


SQUASHES = st.sampled_from([Squash.NONE, Squash.CLIP3_DIV3, Squash.TANH])
BOUNDS = st.sampled_from(
    [(-1.0, 1.0), (0.0, 10.0), (-2.5, -2.5), (-math.inf, math.inf), (-math.inf, 3.0), (0.0, math.inf), (-3e38, 3e38)]
)


@settings(deadline=None)
@given(squash=SQUASHES, bounds=st.lists(BOUNDS, max_size=4), seed=st.integers(0, 1000))
def test_it_equals_the_contract(squash: Squash, bounds: list[tuple[float, float]], seed: int) -> None:
    """Scaled and squashed actions equal the contract's to float32 rounding; the draw stays unchanged."""
    transform = ActionTransform(squash, tuple(low for low, _ in bounds), tuple(high for _, high in bounds))
    raw = np.random.default_rng(seed).normal(scale=4, size=(5, len(bounds) or 3)).astype(np.float32)
    before = raw.copy()
    if squash is Squash.NONE:
        raw[...] = before = before.clip(-1, 1)

    found = PreparedTransform(transform).apply(raw)

    np.testing.assert_array_equal(before, raw)
    assert found.dtype == np.float32
    largest = max([1.0, *(abs(value) for pair in bounds for value in pair if math.isfinite(value))])
    np.testing.assert_allclose(found, transform.apply(raw), rtol=1e-5, atol=1e-6 * largest)


@pytest.mark.parametrize("squash", [Squash.CLIP3_DIV3, Squash.TANH])
def test_a_squashed_action_never_leaves_its_bounds(squash: Squash) -> None:
    """Extreme draws reach the bounds exactly and never exceed them."""
    random = np.random.default_rng(0)
    low = random.normal(size=200).astype(np.float32)
    high = low + random.exponential(size=200).astype(np.float32)
    transform = PreparedTransform(ActionTransform(squash, tuple(low.tolist()), tuple(high.tolist())))

    for raw in (-1e6, 1e6, -3.0, 3.0):
        actions = transform.apply(np.full((1, 200), raw, np.float32))
        assert ((actions >= low) & (actions <= high)).all()
