"""Tests the transform of draws to actions by the formulas of spec.proto."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from rollcast.enums import Squash
from rollcast.errors import BadSpec
from rollcast.transforms import ActionTransform
from rollcast.v1 import spec_pb2

INF = float("inf")
DRAWS = np.asarray([[-6.0, 0.0], [-1.5, 3.0], [0.3, 9.0]], np.float32)


def column(*rows: tuple[float, float]) -> NDArray[np.float32]:
    """Returns expected actions `[3, 2]`."""
    return np.asarray(rows, np.float32)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [
        (ActionTransform(Squash.NONE), DRAWS),
        (ActionTransform(Squash.CLIP3_DIV3), column((-1, 0), (-0.5, 1), (0.1, 1))),
        (ActionTransform(Squash.TANH), np.tanh(DRAWS)),
        (ActionTransform(Squash.CLIP3_DIV3, (-2, 0), (2, 10)), column((-2, 5), (-1, 10), (0.2, 10))),
        (ActionTransform(Squash.NONE, (-2, 0), (2, 10)), column((-12, 5), (-3, 20), (0.6, 50))),
        (ActionTransform(Squash.CLIP3_DIV3, (-2, 0), (2, INF)), column((-2, 0), (-1, 3), (0.2, 9))),
        (ActionTransform(Squash.TANH, (-INF, -INF), (INF, 3)), DRAWS),
        (ActionTransform(Squash.CLIP3_DIV3, (4, -1), (4, 1)), column((4, 0), (4, 1), (4, 1))),
    ],
)
def test_cases_worked_out_by_hand(transform: ActionTransform, expected: NDArray[np.float32]) -> None:
    """Draws are squashed and then mapped, except on axes with infinite bounds."""
    actual = transform.apply(DRAWS)
    np.testing.assert_allclose(actual, expected, rtol=1e-6)
    assert actual.dtype == np.float32
    assert actual.shape == DRAWS.shape


FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@settings(deadline=None, max_examples=200)
@given(FLOAT32, FLOAT32, FLOAT32, st.sampled_from([Squash.CLIP3_DIV3, Squash.TANH]))
def test_squashed_actions_stay_within_their_bounds(one: float, other: float, draw: float, squash: Squash) -> None:
    """Squashed actions stay within their bounds, also near the largest float32."""
    low, high = min(one, other), max(one, other)
    action = ActionTransform(squash, (low,), (high,)).apply(np.asarray([[draw]], np.float32))
    assert low <= float(action[0, 0]) <= high


def test_another_number_of_axes_is_an_error() -> None:
    """Bounds are never broadcast to another number of axes."""
    with pytest.raises(ValueError, match="bounds of 1 axes"):
        ActionTransform(Squash.TANH, (-1,), (1,)).apply(DRAWS)


@pytest.mark.parametrize(
    "transform",
    [ActionTransform(Squash.TANH), ActionTransform(Squash.NONE, (-INF, 0.1), (INF, 0.2))],
)
def test_round_trip(transform: ActionTransform) -> None:
    """Infinite bounds and fractions survive a round trip."""
    sent = transform.to_message().SerializeToString()
    assert transform == ActionTransform.from_message(spec_pb2.ActionTransform.FromString(sent))


@pytest.mark.parametrize(
    ("message", "fault"),
    [
        (spec_pb2.ActionTransform(), "squash 0"),
        (spec_pb2.ActionTransform(squash=9), "squash 9"),  # type: ignore[arg-type]
        (spec_pb2.ActionTransform(squash=spec_pb2.SQUASH_TANH, low=[0]), "1 low and 0 high"),
        (spec_pb2.ActionTransform(squash=spec_pb2.SQUASH_TANH, low=[1], high=[0]), "not an interval"),
        (spec_pb2.ActionTransform(squash=spec_pb2.SQUASH_TANH, low=[INF], high=[INF]), "not an interval"),
        (spec_pb2.ActionTransform(squash=spec_pb2.SQUASH_TANH, low=[float("nan")], high=[1]), "not an interval"),
    ],
)
def test_senseless_transforms_are_refused(message: spec_pb2.ActionTransform, fault: str) -> None:
    """Unknown squashes and reversed, missing or NaN bounds are refused."""
    with pytest.raises(BadSpec, match=fault):
        ActionTransform.from_message(message)
