"""Observation spaces become specs, and observations become arrays of the wire's types."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rollcast.enums import ImageLayout, ObservationKind

from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.spaces import ObservationPlan
from tests.actor_client.envs import toys


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Box(-1, 1, (4,), np.float64), ("VECTOR", np.float32, (4,), "UNSPECIFIED", 0)),
        (spaces.Box(-1, 1, (), np.float32), ("VECTOR", np.float32, (1,), "UNSPECIFIED", 0)),
        (spaces.Box(0, 9, (3, 5), np.int64), ("VECTOR", np.float32, (15,), "UNSPECIFIED", 0)),
        (spaces.Box(0, 255, (128,), np.uint8), ("VECTOR", np.float32, (128,), "UNSPECIFIED", 255)),
        (spaces.Box(0, 255, (84, 84, 3), np.uint8), ("IMAGE", np.uint8, (84, 84, 3), "HWC", 255)),
        (spaces.Box(0, 255, (4, 84, 84), np.uint8), ("IMAGE", np.uint8, (4, 84, 84), "CHW", 255)),
        (spaces.Box(0, 255, (4, 84, 84, 1), np.uint8), ("VECTOR", np.float32, (4 * 84 * 84,), "UNSPECIFIED", 255)),
        (spaces.Box(0, 255, (64, 48), np.uint8), ("IMAGE", np.uint8, (64, 48, 1), "HWC", 255)),
        (spaces.Box(0, 255, (19, 48), np.uint8), ("VECTOR", np.float32, (19 * 48,), "UNSPECIFIED", 255)),
        (spaces.Box(0, 1, (12, 40, 40), np.float64), ("IMAGE", np.float32, (12, 40, 40), "CHW", 0)),
        (spaces.Box(0, 1, (9, 9, 46), np.float32), ("IMAGE", np.float32, (9, 9, 46), "CHW", 0)),
        (spaces.Box(0, 1, (7, 7, 2), np.float32), ("IMAGE", np.float32, (7, 7, 2), "HWC", 0)),
        (spaces.Box(0, 1, (3, 3, 3), np.float32), ("VECTOR", np.float32, (27,), "UNSPECIFIED", 0)),
    ],
)
def test_box_is_an_image_or_numbers_by_its_shape(space: Any, expected: tuple[Any, ...]) -> None:
    """Three axes are an image unless tiny, two are one if both are long, all else is flattened; bytes of images stay."""
    kind, dtype, shape, layout, scale = expected
    (spec,) = ObservationPlan(space).specs

    assert spec.name == "obs"
    assert spec.kind is ObservationKind[kind]
    assert spec.dtype == np.dtype(dtype)
    assert spec.shape == shape
    assert spec.layout is ImageLayout[layout]
    assert spec.scale == scale


def test_nested_spaces_are_flattened_with_readable_names() -> None:
    """Every leaf of Dicts and Tuples is an observation named by its path, in characters that the wire allows."""
    plan = ObservationPlan(toys.nested().observation_space)

    assert {spec.name: (spec.kind.name, spec.shape) for spec in plan.specs} == {
        "camera": ("IMAGE", (24, 32, 3)),
        "depth": ("IMAGE", (24, 20, 1)),
        "inner.0": ("CATEGORICAL", (1,)),
        "inner.1.a_b": ("CATEGORICAL", (3,)),
        "inner.1.bits": ("VECTOR", (6,)),
        "speed": ("VECTOR", (1,)),
    }
    assert [spec.categories for spec in plan.specs if spec.categories] == [(4,), (2, 3, 4)]


def test_values_arrive_where_they_belong() -> None:
    """Each leaf of several observations is found, converted and stacked; categories count from 0."""
    space = toys.nested().observation_space
    space.seed(1)
    observations = [space.sample() for _ in range(3)]

    arrays = dict(
        zip([s.name for s in ObservationPlan(space).specs], ObservationPlan(space).encode(observations), strict=True)
    )

    for row, observation in enumerate(observations):
        np.testing.assert_array_equal(observation["camera"], arrays["camera"][row])
        np.testing.assert_array_equal(observation["depth"][..., None].astype(np.float32), arrays["depth"][row])
        assert arrays["inner.0"][row].tolist() == [observation["inner"][0] + 2]
        np.testing.assert_array_equal(observation["inner"][1]["a b"], arrays["inner.1.a_b"][row])
        np.testing.assert_array_equal(observation["inner"][1]["bits"], arrays["inner.1.bits"][row])
        assert arrays["speed"][row].tolist() == [np.float32(observation["speed"])]
    assert {"camera": "uint8", "inner.0": "int32", "depth": "float32"}.items() <= {
        name: str(array.dtype) for name, array in arrays.items()
    }.items()


def test_a_batched_observation_encodes_like_its_rows() -> None:
    """What a vector environment returns at once becomes the same arrays as the single observations."""
    vector = toys.several(3, kind="nested")
    batched, _ = vector.reset(seed=5)
    plan = ObservationPlan(vector.single_observation_space)
    rows = [environment.shown[-1] for environment in vector.envs]

    for expected, found in zip(plan.encode(rows), plan.encode_batch(batched), strict=True):
        np.testing.assert_array_equal(expected, found)
        assert expected.dtype == found.dtype


def test_keys_that_look_alike_get_different_names() -> None:
    """Two keys that the wire would write the same way are told apart by a number, and long ones are cut."""
    part = spaces.Box(0, 1, (2,), np.float32)
    plan = ObservationPlan(spaces.Dict({"a b": part, "a_b": part, "a.b": part, "x" * 80: part, "x" * 90: part}))

    names = [spec.name for spec in plan.specs]
    assert len(set(names)) == 5
    assert {"a_b", "a_b_2", "a.b", "x" * 64, "x" * 62 + "_2"} == set(names)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Text(4),
        spaces.Dict({"words": spaces.Sequence(spaces.Discrete(3))}),
        spaces.Box(0, 1, (0,), np.float32),
        spaces.Box(0, 1, (20, 0, 3), np.float32),
    ],
)
def test_other_spaces_are_refused_by_name(space: Any) -> None:
    """The error names the space and says what to do."""
    with pytest.raises(UnsupportedSpace, match=r"observation (obs|words)") as caught:
        ObservationPlan(space)
    assert "\n" not in caught.value.message


def test_wrong_shapes_are_an_error() -> None:
    """An observation of another shape than its space is refused, not broadcast."""
    plan = ObservationPlan(spaces.Box(0, 1, (4,), np.float32))

    with pytest.raises(ValueError, match=r"shape \[1\]; its space has \[4\]"):
        plan.encode([np.zeros(1), np.zeros(1)])
