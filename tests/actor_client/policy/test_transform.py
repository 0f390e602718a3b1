"""The prepared transform does what the contract's transform does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import Squash
from rollcast.specs import ActionTransform

from actor_client.policy.distributions import PreparedTransform

SQUASHES = st.sampled_from([Squash.NONE, Squash.CLIP3_DIV3, Squash.TANH])
BOUNDS = st.sampled_from(
    [(-1.0, 1.0), (0.0, 10.0), (-2.5, -2.5), (-math.inf, math.inf), (-math.inf, 3.0), (0.0, math.inf), (-3e38, 3e38)]
)


@settings(deadline=None)
@given(squash=SQUASHES, bounds=st.lists(BOUNDS, max_size=4), seed=st.integers(0, 1000))
def test_it_equals_the_contract(squash: Squash, bounds: list[tuple[float, float]], seed: int) -> None:
    """Any squash and any bounds give the contract's result to float32 rounding, and the draw stays as it was."""
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
    """Extreme draws reach the bounds exactly and no further, whatever the rounding."""
    random = np.random.default_rng(0)
    low = random.normal(size=200).astype(np.float32)
    high = low + random.exponential(size=200).astype(np.float32)
    transform = PreparedTransform(ActionTransform(squash, tuple(low.tolist()), tuple(high.tolist())))

    for raw in (-1e6, 1e6, -3.0, 3.0):
        actions = transform.apply(np.full((1, 200), raw, np.float32))
        assert ((actions >= low) & (actions <= high)).all()
