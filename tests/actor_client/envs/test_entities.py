"""Lists of entities, boards and pictures of gymnasium spaces: what they say of themselves, and how they travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from rollcast.enums import ImageLayout, ObservationKind

from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.spaces import ObservationPlan


def list_of(size: int, most: Any) -> spaces.Sequence:
    """Returns a space of lists of vectors, at most so many."""
    space = spaces.Sequence(spaces.Box(-1.0, 1.0, (size,), np.float32), stack=True)
    if most is not None:
        setattr(space, "max_length", most)  # noqa: B010 - gymnasium's class has no such attribute
    return space


def test_a_sequence_is_a_list_of_entities() -> None:
    """It is declared with its longest length, and travels with zeros behind what is there."""
    plan = ObservationPlan(list_of(3, 4))
    (spec,) = plan.specs
    assert (spec.kind, spec.shape, spec.dtype) == (ObservationKind.ENTITIES, (4, 3), np.dtype(np.float32))
    (values,) = plan.encode([np.ones((2, 3), np.float32), np.zeros((0, 3), np.float32)])
    assert values.shape == (2, 4, 3)
    assert values.sum(axis=(1, 2)).tolist() == [6.0, 0.0]
    assert values[0, :2].tolist() == np.ones((2, 3)).tolist()


def test_entities_beside_a_vector() -> None:
    """A Dict may hold lists and vectors; entities may come as a tuple of arrays, too."""
    plan = ObservationPlan(spaces.Dict({"own": spaces.Box(-1.0, 1.0, (2,), np.float32), "others": list_of(3, 2)}))
    others, own = plan.encode([{"own": np.zeros(2, np.float32), "others": (np.ones(3, np.float32),)}])
    if plan.specs[0].name == "own":
        others, own = own, others
    assert others[0].tolist() == [[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]]
    assert own.shape == (1, 2)


def test_lists_of_a_vector_environment() -> None:
    """One observation whose lists stand side by side is taken apart."""
    (values,) = ObservationPlan(list_of(1, 3)).encode_batch((np.ones((1, 1)), np.ones((3, 1))))
    assert values.sum(axis=(1, 2)).tolist() == [1.0, 3.0]


@pytest.mark.parametrize("most", [None, 0, "many"])
def test_a_list_that_may_be_endless_is_refused(most: Any) -> None:
    """The error says which attribute is missing."""
    with pytest.raises(UnsupportedSpace, match=r"space\.max_length = 20"):
        ObservationPlan(list_of(3, most))


def test_lists_of_other_things_are_refused() -> None:
    """Entities are numbers."""
    with pytest.raises(UnsupportedSpace, match="lists of Boxes"):
        ObservationPlan(spaces.Dict({"words": spaces.Sequence(spaces.Discrete(3))}))


@pytest.mark.parametrize(
    ("entities", "message"), [(np.ones((5, 3)), "5 entities; its space says 4"), (np.ones((2, 2)), "of 2 numbers")]
)
def test_what_does_not_fit_the_space_is_a_fault_of_the_environment(entities: Any, message: str) -> None:
    """More entities than declared, or larger ones, are named."""
    with pytest.raises(ValueError, match=message):
        ObservationPlan(list_of(3, 4)).encode([entities])


def board(shape: tuple[int, ...], layout: Any) -> spaces.Box:
    """Returns a Box that says what its axes are."""
    space = spaces.Box(0.0, 1.0, shape, np.float32)
    setattr(space, "layout", layout)  # noqa: B010 - see list_of
    return space


@pytest.mark.parametrize(("shape", "layout"), [((46, 9, 9), "CHW"), ((3, 3, 3), "CHW"), ((3, 3, 17), "HWC")])
def test_a_box_may_say_that_it_is_planes_of_a_board(shape: tuple[int, ...], layout: str) -> None:
    """However small the board or many the planes, it stays one, with its axes as they are."""
    (spec,) = ObservationPlan(board(shape, layout)).specs
    assert (spec.kind, spec.shape, spec.layout) == (ObservationKind.IMAGE, shape, ImageLayout[layout])


@pytest.mark.parametrize(
    ("shape", "layout"), [((9, 9), "CHW"), ((3, 9, 9), "WHC"), ((3, 9, 9), "UNSPECIFIED"), ((3, 9, 9), 2)]
)
def test_a_layout_that_makes_no_sense_is_refused(shape: tuple[int, ...], layout: Any) -> None:
    """Boards have three axes, planes first or last."""
    with pytest.raises(UnsupportedSpace, match="CHW or HWC"):
        ObservationPlan(board(shape, layout))
