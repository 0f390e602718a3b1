"""Behaviors as Unity players declare them through the gateway."""

from __future__ import annotations

import numpy as np
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

FLOAT = np.dtype(np.float32)
_PICTURE = (
    DimensionProperty.NONE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
    DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
)


def vector(size: int, name: str = "vector", role: ObservationRole = ObservationRole.DEFAULT) -> ObservationSpec:
    """Returns a vector sensor."""
    return ObservationSpec(name, FLOAT, (size,), role=role, dimension_properties=(DimensionProperty.NONE,))


def floats(*shape: int) -> ObservationSpec:
    """Returns an image or grid of floats, [C, H, W]."""
    return ObservationSpec(
        "grid", FLOAT, shape, ObservationKind.IMAGE, layout=ImageLayout.CHW, dimension_properties=_PICTURE
    )


def png(*shape: int) -> ObservationSpec:
    """Returns a PNG image that is sent as bytes, [C, H, W]."""
    return ObservationSpec(
        "camera",
        np.dtype(np.uint8),
        shape,
        ObservationKind.IMAGE,
        layout=ImageLayout.CHW,
        scale=255.0,
        dimension_properties=_PICTURE,
    )


def entities(most: int, size: int, name: str = "buffer") -> ObservationSpec:
    """Returns a buffer sensor with up to this many entities."""
    properties = (DimensionProperty.VARIABLE_SIZE, DimensionProperty.NONE)
    return ObservationSpec(name, FLOAT, (most, size), ObservationKind.ENTITIES, dimension_properties=properties)


def examples() -> dict[str, BehaviorSpec]:
    """Returns the behaviors of ML-Agents' example scenes."""
    table: dict[str, tuple[tuple[int | ObservationSpec, ...], int, tuple[int, ...]]] = {
        "3DBall": ((8,), 2, ()),
        "3DBallHard": ((45,), 2, ()),
        "Walker": ((243,), 39, ()),
        "Crawler": ((126, 32), 20, ()),
        "Worm": ((64,), 9, ()),
        "Basic": ((20,), 0, (3,)),
        "PushBlock": ((105, 105), 0, (7,)),
        "Pyramids": ((56, 56, 56, 4), 0, (5,)),
        "SoccerTwos": ((336,), 0, (3, 3, 3)),
        "Goalie": ((738,), 0, (3, 3, 3)),
        "Striker": ((231, 63), 0, (3, 3, 3)),
        "WallJump": ((210, 210, 24), 0, (3, 3, 3, 2)),
        "Match3": ((432, 216), 0, (127,)),
        "GridFoodCollector": ((floats(5, 40, 40),), 3, (2,)),
        "VisualFoodCollector": ((png(3, 84, 84), 1), 3, (2,)),
        "PushBlockCollab": ((floats(6, 20, 20), 10), 0, (7,)),
        "Sorter": ((entities(20, 23), 10, 8), 0, (3, 3, 3)),
        "Visual3DBall": ((png(12, 84, 84),), 2, ()),
    }
    return {
        name: BehaviorSpec(
            name,
            tuple(
                vector(sensor, f"sensor{place}") if isinstance(sensor, int) else sensor
                for place, sensor in enumerate(sensors)
            ),
            ActionSpec(axes, branches),
        )
        for name, (sensors, axes, branches) in table.items()
    }


GOAL = vector(3, "goal", ObservationRole.GOAL)
TRAINED = {
    "continuous": BehaviorSpec("My Behavior", (vector(8),), ActionSpec(2)),
    "discrete": BehaviorSpec("Springer & Söhne", (png(3, 20, 20), vector(4)), ActionSpec(0, (3, 2))),
    "entities": BehaviorSpec(
        "Sorter", (entities(5, 3), vector(4), entities(3, 2, "others"), GOAL), ActionSpec(2, (3,))
    ),
    "hybrid": BehaviorSpec("Ball#2", (floats(6, 20, 20), vector(5), GOAL), ActionSpec(3, (2, 4)), grouped=True),
}
"""One of each kind of action, with names that people give, pictures of both kinds, lists, goals and a group."""
