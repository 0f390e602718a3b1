"""Tests running statistics of observations."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from learner.training.networks.normalizer import WARM_UP_ROWS, Normalizer, RunningMoments, batch_moments


def test_batches_merge_to_the_statistics_of_all_rows() -> None:
    """Statistics do not depend on how rows are divided."""
    rows = np.random.default_rng(1).normal(1000.0, 0.1, (500, 3))
    moments = RunningMoments(3)
    for part in np.split(rows, [1, 7, 300]):
        moments.merge(batch_moments(torch.from_numpy(part)))
    squares = 1.0 + np.square(rows - rows.mean(0)).sum(0) + rows.mean(0) ** 2 * 500 / 501  # of the pseudo row at 0
    assert moments.count.item() == 501
    np.testing.assert_allclose(rows.mean(0) * 500 / 501, moments.mean.numpy(), rtol=1e-13)
    np.testing.assert_allclose(np.sqrt(squares / 501), moments.std().numpy(), rtol=1e-10)


def test_a_normalizer_changes_only_at_publication() -> None:
    """A normalizer is the identity within the clamp until it is published."""
    normalizer, moments = Normalizer(2, 5.0), RunningMoments(2)
    moments.merge(batch_moments(torch.full((10_000, 2), 3.0) + torch.tensor([[-1.0], [1.0]]).repeat(5000, 1)))
    values = torch.tensor([[3.0, 4.0]])
    assert torch.equal(values, normalizer(values))
    normalizer.publish(moments)
    np.testing.assert_allclose([[0.0, 1.0]], normalizer(values).numpy(), atol=2e-3)
    assert normalizer.mean.dtype == normalizer.std.dtype == torch.float32


def test_normalized_values_are_clamped() -> None:
    """Outliers are clamped to the size that the run file says."""
    found = Normalizer(2, 7.5)(torch.tensor([[1e9, -1e9]]))
    assert found.tolist() == [[7.5, -7.5]]


def test_a_constant_input_does_not_divide_by_zero() -> None:
    """A deviation of zero does not divide by zero."""
    moments = RunningMoments(1)
    moments.m2 = torch.zeros(1, dtype=torch.float64)
    assert moments.std().item() > 0


def test_statistics_survive_a_round_trip() -> None:
    """A saved state is equal bit for bit, and one of another size is refused."""
    moments, other = RunningMoments(3), RunningMoments(3)
    other.load_state_dict(moments.state_dict())  # of no rows
    moments.merge(batch_moments(torch.randn(17, 3)))
    other.load_state_dict(moments.state_dict())
    assert torch.equal(moments.mean, other.mean)
    assert torch.equal(moments.std(), other.std())
    with pytest.raises(ValueError, match=r"shape \[3\], not \[2\]"):
        RunningMoments(2).load_state_dict(moments.state_dict())


def test_large_values_of_single_precision_keep_their_differences() -> None:
    """Moments are computed in float64, also those of rows in float32."""
    rows = torch.tensor([[2.0**23], [2.0**23 + 1.0]])
    assert batch_moments(rows).tolist() == [[2.0], [2.0**23 + 0.5], [0.5]]


def seen(rows: int, seed: int = 1) -> RunningMoments:
    """Statistics of rows with mean 3 and deviation 2."""
    moments = RunningMoments(3)
    moments.merge(moments.moments(torch.from_numpy(np.random.default_rng(seed).normal(3.0, 2.0, (rows, 3)))))
    return moments


def test_extreme_rows_do_not_blind_a_normalizer() -> None:
    """Two chunks of 9e14 leave normalized values in their range; before the warm-up nothing is clipped."""
    moments = seen(10 * WARM_UP_ROWS)
    for sign in (1.0, -1.0):
        moments.merge(moments.moments(torch.full((10, 3), sign * 9e14)))
    np.testing.assert_allclose(moments.mean.numpy(), 3.0, atol=0.1)
    np.testing.assert_allclose(moments.std().numpy(), 2.0, rtol=0.1)
    assert moments.clipped.item() == 2 * 10 * 3
    new = RunningMoments(3)
    assert torch.equal(new.moments(torch.full((10, 3), 9e14)), batch_moments(torch.full((10, 3), 9e14)))


def test_a_normalizer_follows_a_change_of_scale() -> None:
    """Values that are a thousand times as large for good become normalized values of order one."""
    moments, rng = seen(2 * WARM_UP_ROWS), np.random.default_rng(2)
    for _ in range(40):
        moments.merge(moments.moments(torch.from_numpy(rng.normal(3e3, 2e3, (WARM_UP_ROWS, 3)))))
    normalizer = Normalizer(3, 5.0)
    normalizer.publish(moments)
    normalized = normalizer(torch.from_numpy(rng.normal(3e3, 2e3, (1000, 3))).float())
    assert 0.5 < normalized.std().item() < 2.0
    assert normalized.mean().abs().item() < 1.0


def test_a_value_that_was_constant_may_start_to_vary() -> None:
    """The limit never closes on a constant: values near it enter as they are."""
    moments = RunningMoments(1)
    moments.merge(moments.moments(torch.full((2 * WARM_UP_ROWS, 1), 100.0)))
    near = torch.tensor([[95.0], [105.0]], dtype=torch.float64)
    assert torch.equal(moments.moments(near), batch_moments(near))


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan])
def test_values_that_are_not_finite_are_not_clipped(value: float) -> None:
    """Infinite values and NaN give moments that are not finite, which callers leave out."""
    assert not seen(2 * WARM_UP_ROWS).moments(torch.full((5, 3), value)).isfinite().all()
