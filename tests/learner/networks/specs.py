"""Behavior specs for tests of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec


def vector(name: str = "state", size: int = 4, dtype: str = "float32", **changes: Any) -> ObservationSpec:
    """A vector observation."""
    return ObservationSpec(name, np.dtype(dtype), (size,), ObservationKind.VECTOR, **changes)


def entities(name: str = "crowd", shape: tuple[int, int] = (5, 3), **changes: Any) -> ObservationSpec:
    """A list of entities ``[max, size]``."""
    return ObservationSpec(name, np.dtype(np.float32), shape, ObservationKind.ENTITIES, **changes)


def goal(name: str = "goal", size: int = 3) -> ObservationSpec:
    """A vector that says what shall be reached."""
    return vector(name, size, role=ObservationRole.GOAL)


def image(name: str = "pixels", shape: tuple[int, ...] = (24, 28, 3), **changes: Any) -> ObservationSpec:
    """A picture of bytes, HWC unless told otherwise."""
    values: dict[str, Any] = {"layout": ImageLayout.HWC, "scale": 255.0, **changes}
    return ObservationSpec(name, np.dtype(np.uint8), shape, ObservationKind.IMAGE, **values)


def behavior(*observations: ObservationSpec, continuous: int = 0, branches: tuple[int, ...] = ()) -> BehaviorSpec:
    """A behavior that sees these observations (a vector of 4 if none) and acts in these ways."""
    return BehaviorSpec("Test", observations or (vector(),), ActionSpec(continuous, branches))
