"""Behavior specs for tests of networks."""

from __future__ import annotations

from typing import Any

import numpy as np
from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec


def vector(name: str = "state", size: int = 4, dtype: str = "float32", **changes: Any) -> ObservationSpec:
    """Returns a vector observation."""
    return ObservationSpec(name, np.dtype(dtype), (size,), ObservationKind.VECTOR, **changes)


def entities(name: str = "crowd", shape: tuple[int, int] = (5, 3), **changes: Any) -> ObservationSpec:
    """Returns a list of entities ``[max, size]``."""
    return ObservationSpec(name, np.dtype(np.float32), shape, ObservationKind.ENTITIES, **changes)


def goal(name: str = "goal", size: int = 3) -> ObservationSpec:
    """Returns a goal vector."""
    return vector(name, size, role=ObservationRole.GOAL)


def image(name: str = "pixels", shape: tuple[int, ...] = (24, 28, 3), **changes: Any) -> ObservationSpec:
    """Returns an image of bytes, HWC by default."""
    values: dict[str, Any] = {"layout": ImageLayout.HWC, "scale": 255.0, **changes}
    return ObservationSpec(name, np.dtype(np.uint8), shape, ObservationKind.IMAGE, **values)


def behavior(*observations: ObservationSpec, continuous: int = 0, branches: tuple[int, ...] = ()) -> BehaviorSpec:
    """Returns a behavior with these observations (by default a vector of 4) and actions."""
    return BehaviorSpec("Test", observations or (vector(),), ActionSpec(continuous, branches))
