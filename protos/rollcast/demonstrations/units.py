"""Converts continuous actions to the unit of demonstrations, [-1, 1] between an axis's bounds as in Unity, and back.

For an axis with the bounds ``low`` and ``high``, ``unit = (action - middle) / half`` with ``middle = (low + high) / 2``
and ``half = (high - low) / 2``. Players send no bounds: their bounds are -1 and 1, so unit and action are the same. An
axis with an infinite bound has no unit and is unchanged.
"""

import numpy as np
from numpy.typing import NDArray

from rollcast.specs import ActionSpec


class ActionUnits:
    """Converts the continuous actions of one behavior.

    Args:
        action: The actions of the behavior.

    Attributes:
        bounded: Axes with a unit, bool [n].
    """

    __slots__ = ("_half", "_high", "_low", "_middle", "bounded")

    def __init__(self, action: ActionSpec) -> None:
        size = action.continuous_size
        low = np.array(action.continuous_low or (-1.0,) * size, np.float64)
        high = np.array(action.continuous_high or (1.0,) * size, np.float64)
        self.bounded: NDArray[np.bool_] = np.isfinite(low) & np.isfinite(high)
        self._low, self._high = np.where(self.bounded, low, 0.0), np.where(self.bounded, high, 0.0)
        self._half = (self._high - self._low) / 2
        self._middle = self._low + self._half

    def unit(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns environment actions [B, n] in units, float32; bounded axes never leave [-1, 1]."""
        half = np.where(self._half > 0, self._half, 1.0)
        units = np.clip((actions.astype(np.float64) - self._middle) / half, -1.0, 1.0)
        return np.where(self.bounded, units, actions).astype(np.float32)

    def actions(self, units: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns units [B, n] as environment actions, float32; inverts `unit` up to float32's rounding."""
        mapped = np.clip(units.astype(np.float64) * self._half + self._middle, self._low, self._high)
        return np.where(self.bounded, mapped, units).astype(np.float32)
