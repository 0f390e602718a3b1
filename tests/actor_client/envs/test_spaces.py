"""Tests how observation spaces become specs, and observations become arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rollcast.enums import ImageLayout, ObservationKind
from structlog.testing import capture_logs

from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.spaces import ObservationPlan, plan_actions
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
        (spaces.Box(0, 255, (4, 84, 84, 1), np.uint8), ("IMAGE", np.uint8, (84, 84, 4), "HWC", 255)),
        (spaces.Box(0, 255, (2, 3, 36, 40), np.uint8), ("IMAGE", np.uint8, (6, 36, 40), "CHW", 255)),
        (spaces.Box(0, 1, (4, 3, 3, 3), np.float32), ("VECTOR", np.float32, (108,), "UNSPECIFIED", 0)),
        (spaces.Box(0, 255, (64, 48), np.uint8), ("IMAGE", np.uint8, (64, 48, 1), "HWC", 255)),
        (spaces.Box(0, 255, (19, 48), np.uint8), ("VECTOR", np.float32, (19 * 48,), "UNSPECIFIED", 255)),
        (spaces.Box(0, 1, (12, 40, 40), np.float64), ("IMAGE", np.float32, (12, 40, 40), "CHW", 0)),
        (spaces.Box(0, 1, (9, 9, 46), np.float32), ("IMAGE", np.float32, (9, 9, 46), "CHW", 0)),
        (spaces.Box(0, 1, (7, 7, 2), np.float32), ("IMAGE", np.float32, (7, 7, 2), "HWC", 0)),
        (spaces.Box(0, 1, (3, 3, 3), np.float32), ("VECTOR", np.float32, (27,), "UNSPECIFIED", 0)),
    ],
)
def test_box_is_an_image_or_numbers_by_its_shape(space: Any, expected: tuple[Any, ...]) -> None:
    """A box becomes an image or a vector by its shape; images of bytes stay bytes."""
    kind, dtype, shape, layout, scale = expected
    (spec,) = ObservationPlan(space).specs

    assert spec.name == "obs"
    assert spec.kind is ObservationKind[kind]
    assert spec.dtype == np.dtype(dtype)
    assert spec.shape == shape
    assert spec.layout is ImageLayout[layout]
    assert spec.scale == scale


def test_nested_spaces_are_flattened_with_readable_names() -> None:
    """Each leaf of a Dict or Tuple becomes an observation named by its path."""
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
    """Each leaf is converted and stacked; categories count from 0."""
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
    """Batched observations of a vector environment become the same arrays as single observations."""
    vector = toys.several(3, kind="nested")
    batched, _ = vector.reset(seed=5)
    plan = ObservationPlan(vector.single_observation_space)
    rows = [environment.shown[-1] for environment in vector.envs]

    for expected, found in zip(plan.encode(rows), plan.encode_batch(batched), strict=True):
        np.testing.assert_array_equal(expected, found)
        assert expected.dtype == found.dtype


def test_keys_that_look_alike_get_different_names() -> None:
    """Keys whose names would be equal on the wire get a number, and long names are cut."""
    part = spaces.Box(0, 1, (2,), np.float32)
    plan = ObservationPlan(spaces.Dict({"a b": part, "a_b": part, "a.b": part, "x" * 80: part, "x" * 90: part}))

    names = [spec.name for spec in plan.specs]
    assert len(set(names)) == 5
    assert {"a_b", "a_b_2", "a.b", "x" * 64, "x" * 62 + "_2"} == set(names)


PAIR = spaces.Box(0, 1, (2,))


@pytest.mark.parametrize(
    ("space", "named"),
    [
        (spaces.Text(4), "Text"),
        (spaces.Graph(PAIR, None), "Graph"),
        (spaces.OneOf([spaces.Discrete(2), PAIR]), "OneOf"),
        (spaces.Sequence(PAIR), r"space\.max_length = 20"),
        (spaces.Sequence(spaces.Discrete(3)), "lists of non-empty Boxes"),
        (spaces.Box(0, 1, (0,), np.float32), "Box"),
        (spaces.Box(0, 1, (20, 0, 3), np.float32), "Box"),
    ],
)
def test_other_spaces_are_refused_by_name(space: Any, named: str) -> None:
    """The error names the observation and the space, also within a Dict or Tuple, and says what to do."""
    for whole, name in ((space, "obs"), (spaces.Dict({"part": space}), "part"), (spaces.Tuple([space]), "0")):
        with pytest.raises(UnsupportedSpace, match=f"observation {name}.*{named}") as caught:
            ObservationPlan(whole)
        assert "\n" not in caught.value.message


def test_wrong_shapes_are_an_error() -> None:
    """An observation of another shape than its space is refused, not broadcast."""
    plan = ObservationPlan(spaces.Box(0, 1, (4,), np.float32))

    with pytest.raises(ValueError, match=r"shape \[1\]; its space has \[4\]"):
        plan.encode([np.zeros(1), np.zeros(1)])


def list_of(size: int, most: Any) -> spaces.Sequence:
    """Returns a space of lists of vectors, at most so many."""
    space = spaces.Sequence(spaces.Box(-1.0, 1.0, (size,), np.float32), stack=True)
    if most is not None:
        setattr(space, "max_length", most)  # noqa: B010 - gymnasium's class has no such attribute
    return space


def test_a_sequence_is_a_list_of_entities() -> None:
    """A Sequence becomes a list of entities with its maximum length; a 1 follows each entity, and zeros the last one."""
    plan = ObservationPlan(list_of(3, 4))
    (spec,) = plan.specs
    assert (spec.kind, spec.shape, spec.dtype) == (ObservationKind.ENTITIES, (4, 4), np.dtype(np.float32))
    lists = np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32), (np.zeros(3, np.float32),)
    for (values,) in (plan.encode(lists), plan.encode_batch(lists)):
        assert values.tolist() == [
            [[1.0] * 4] * 2 + [[0.0] * 4] * 2,
            [[0.0] * 4] * 4,
            [[0.0, 0.0, 0.0, 1.0]] + [[0.0] * 4] * 3,
        ]


@pytest.mark.parametrize("most", [0, "many"])
def test_a_list_that_may_be_endless_is_refused(most: Any) -> None:
    """A Sequence without a maximum length is refused; the error names the missing attribute."""
    with pytest.raises(UnsupportedSpace, match=r"space\.max_length = 20"):
        ObservationPlan(list_of(3, most))


@pytest.mark.parametrize(
    ("entities", "message"),
    [(np.ones((5, 3)), "5 entities; its space allows at most 4"), (np.ones((2, 2)), "of 2 numbers")],
)
def test_what_does_not_fit_the_space_is_a_fault_of_the_environment(entities: Any, message: str) -> None:
    """Too many entities, or entities of a wrong size, are named."""
    with pytest.raises(ValueError, match=message):
        ObservationPlan(list_of(3, 4)).encode([entities])


def board(shape: tuple[int, ...], layout: Any) -> spaces.Box:
    """Returns a Box that says what its axes are."""
    space = spaces.Box(0.0, 1.0, shape, np.float32)
    setattr(space, "layout", layout)  # noqa: B010 - see list_of
    return space


@pytest.mark.parametrize(("shape", "layout"), [((46, 9, 9), "CHW"), ((3, 3, 3), "CHW"), ((3, 3, 17), "HWC")])
def test_a_box_may_say_that_it_is_planes_of_a_board(shape: tuple[int, ...], layout: str) -> None:
    """A box that declares board planes stays a board of any size, with its axes unchanged."""
    (spec,) = ObservationPlan(board(shape, layout)).specs
    assert (spec.kind, spec.shape, spec.layout) == (ObservationKind.IMAGE, shape, ImageLayout[layout])


@pytest.mark.parametrize(
    ("shape", "layout"), [((9, 9), "CHW"), ((3, 9, 9), "WHC"), ((3, 9, 9), "UNSPECIFIED"), ((3, 9, 9), 2)]
)
def test_a_layout_that_makes_no_sense_is_refused(shape: tuple[int, ...], layout: Any) -> None:
    """Boards have three axes, planes first or last."""
    with pytest.raises(UnsupportedSpace, match="CHW or HWC"):
        ObservationPlan(board(shape, layout))


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
    """Choices that count from 0 map onto actions of the space, one at a time and in a batch."""
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
    if isinstance(space, spaces.Discrete):
        assert singles == [space.start, space.start + space.n - 1]


def test_continuous_actions_have_shape_type_and_bounds_of_the_box() -> None:
    """Continuous actions get the shape, type and bounds of their box; bounds beyond float32 count as infinite."""
    with capture_logs() as logs:
        plan = plan_actions(toys.continuous().action_space)
    assert plan.spec.continuous_size == 4
    assert plan.spec.continuous_low == (-2.0, 0.0, -np.inf, -1.0)
    assert plan.spec.continuous_high == (2.0, 10.0, np.inf, np.inf)

    (action,) = plan.singles(np.array([[-2.5, 11.0, 77.0, -5.0]], np.float32), None)
    assert action.tolist() == [[-2.0, 10.0], [77.0, -1.0]]
    assert action.dtype == np.float64
    assert [(log["event"], log["axes"]) for log in logs] == [("action_axes_without_bounds", [2, 3])]
    with capture_logs():
        assert plan_actions(spaces.Box(-1e300, 1e300, (1,), np.float64)).spec.continuous_low == (-np.inf,)
    bytes_of = spaces.Box(0, 255, (3,), np.uint8)
    (action,) = plan_actions(bytes_of).singles(np.array([[-4.0, 17.6, 300.0]], np.float32), None)
    assert (action.tolist(), bytes_of.contains(action)) == ([0, 18, 255], True)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Tuple((spaces.Discrete(2), spaces.Discrete(2))),
        spaces.Dict({"walk": spaces.Discrete(2)}),
        spaces.Sequence(PAIR),
        spaces.Text(3),
        spaces.Box(0, 1, (0,), np.float32),
    ],
)
def test_other_action_spaces_are_refused_by_name(space: Any) -> None:
    """The error names the space and what is supported."""
    with pytest.raises(UnsupportedSpace, match=f"{type(space).__name__}.*supported are Discrete"):
        plan_actions(space)
