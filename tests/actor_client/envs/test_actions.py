"""Action spaces become specs, and a policy's choices become what the environment takes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from structlog.testing import capture_logs

from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.spaces import plan_actions
from tests.actor_client.envs import toys


@pytest.mark.parametrize(
    ("space", "branches"),
    [
        (spaces.Discrete(4), (4,)),
        (spaces.Discrete(4, start=-3), (4,)),
        (spaces.MultiDiscrete([3, 2]), (3, 2)),
        (spaces.MultiDiscrete(np.array([[3, 2], [4, 5]]), start=np.array([[1, 0], [-4, 2]])), (3, 2, 4, 5)),
        (spaces.MultiBinary(3), (2, 2, 2)),
        (spaces.MultiBinary((2, 2)), (2, 2, 2, 2)),
    ],
)
def test_every_choice_is_in_the_space(space: Any, branches: tuple[int, ...]) -> None:
    """Choices counted from 0 in each branch map onto actions of the space, the same singly and in a batch."""
    plan = plan_actions(space)
    assert plan.spec.discrete_branches == branches
    assert plan.spec.continuous_size == 0
    lowest = np.zeros((1, len(branches)), np.int32)
    highest = np.array([branches], np.int32) - 1

    choices = np.concatenate((lowest, highest))
    singles = plan.singles(None, choices)
    assert len(singles) == 2
    for single, batched in zip(singles, plan.batch(None, choices), strict=True):
        assert space.contains(single)
        np.testing.assert_array_equal(single, batched)
    assert not np.array_equal(singles[0], singles[1])


def test_discrete_counts_from_its_start() -> None:
    """Choice 0 of Discrete(4, start=-3) is the action -3."""
    plan = plan_actions(spaces.Discrete(4, start=-3))

    assert plan.singles(None, np.array([[0], [3]], np.int32)) == [-3, 0]


def test_continuous_actions_have_shape_type_and_bounds_of_the_box() -> None:
    """Flat axes become the box's shape and type, and are clipped where it has bounds."""
    with capture_logs() as logs:
        plan = plan_actions(toys.continuous().action_space)
    assert plan.spec.continuous_size == 4
    assert plan.spec.continuous_low == (-2.0, 0.0, -np.inf, -1.0)
    assert plan.spec.continuous_high == (2.0, 10.0, np.inf, np.inf)

    (action,) = plan.singles(np.array([[-2.5, 11.0, 77.0, -5.0]], np.float32), None)

    assert action.tolist() == [[-2.0, 10.0], [77.0, -1.0]]
    assert action.dtype == np.float64
    assert [log["event"] for log in logs] == ["action_axes_without_bounds"]
    assert logs[0]["axes"] == [2, 3]


def test_integer_boxes_are_rounded() -> None:
    """A box of integers gets the nearest integer within its bounds."""
    space = spaces.Box(0, 255, (3,), np.uint8)
    (action,) = plan_actions(space).singles(np.array([[-4.0, 17.6, 300.0]], np.float32), None)

    assert action.tolist() == [0, 18, 255]
    assert space.contains(action)


def test_bounds_beyond_float32_are_no_bounds() -> None:
    """A bound that float32 cannot hold counts as infinite and makes no arithmetic warning."""
    with capture_logs() as logs:
        plan = plan_actions(spaces.Box(-1e300, 1e300, (1,), np.float64))

    assert plan.spec.continuous_low == (-np.inf,)
    assert len(logs) == 1


@pytest.mark.parametrize(
    "space",
    [spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))), spaces.Text(3), spaces.Box(0, 1, (0,), np.float32)],
)
def test_other_spaces_are_refused_by_name(space: Any) -> None:
    """The error names the space and what is supported."""
    with pytest.raises(UnsupportedSpace, match="supported are Discrete"):
        plan_actions(space)
