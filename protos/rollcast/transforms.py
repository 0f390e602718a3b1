"""Converts recorded raw draws to the actions that environments take."""

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rollcast.enums import Squash, member
from rollcast.errors import BadSpec
from rollcast.v1 import spec_pb2

CLIP: Final = 3.0
"""The draw that CLIP3_DIV3 maps to 1."""


@dataclass(frozen=True, slots=True)
class ActionTransform:
    """A squash followed by an affine map onto the bounds; see spec.proto.

    Attributes:
        squash: Applied first, to every axis with bounds.
        low: One value per axis; if empty, every axis has the bounds [-1, 1], and there is no map.
        high: See low.
    """

    squash: Squash = Squash.NONE
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        """Brings values to the form that they have after encoding and decoding."""
        object.__setattr__(self, "low", tuple(float(np.float32(value)) for value in self.low))
        object.__setattr__(self, "high", tuple(float(np.float32(value)) for value in self.high))
        if len(self.low) != len(self.high):
            raise BadSpec(
                f"action transform: {len(self.low)} low and {len(self.high)} high bounds; each axis needs one of both"
            )

    def apply(self, raw: NDArray[np.float32]) -> NDArray[np.float32]:
        """Maps draws `[B, n]` to environment actions `[B, n]`.

        An axis with an infinite bound is unchanged. A squashed value never leaves its bounds, rounding included.

        Raises:
            ValueError: `raw` has another number of axes than the bounds.
        """
        squashed = self._squashed(raw)
        if not self.low:
            return squashed
        if raw.ndim != 2 or raw.shape[1] != len(self.low):
            raise ValueError(f"draws of shape {list(raw.shape)} for bounds of {len(self.low)} axes")
        # float64: high - low may pass the largest float32
        low = np.asarray(self.low, np.float64)
        high = np.asarray(self.high, np.float64)
        bounded = np.isfinite(low) & np.isfinite(high)
        half = np.where(bounded, high - np.where(bounded, low, 0), 0) / 2
        middle = np.where(bounded, low, 0) + half
        mapped = squashed * half + middle
        if self.squash is not Squash.NONE:
            mapped = np.clip(mapped, np.where(bounded, low, 0), np.where(bounded, high, 0))
        return np.where(bounded, mapped, raw).astype(np.float32)

    def _squashed(self, raw: NDArray[np.float32]) -> NDArray[np.float32]:
        if self.squash is Squash.CLIP3_DIV3:
            return np.asarray(np.clip(raw, -CLIP, CLIP) / np.float32(CLIP), np.float32)
        if self.squash is Squash.TANH:
            return np.asarray(np.tanh(raw), np.float32)
        return np.asarray(raw, np.float32)

    def to_message(self) -> spec_pb2.ActionTransform:
        """Encodes the transform as a message."""
        return spec_pb2.ActionTransform(squash=self.squash, low=self.low, high=self.high)  # type: ignore[arg-type]

    @classmethod
    def from_message(cls, message: spec_pb2.ActionTransform) -> "ActionTransform":
        """Decodes and checks a message.

        Raises:
            BadSpec: The squash is unknown, or the bounds are not intervals.
        """
        squash = member(Squash, message.squash)
        if squash is None or squash is Squash.UNSPECIFIED:
            raise BadSpec(f"action transform: squash {message.squash} is unknown")
        transform = cls(squash, tuple(message.low), tuple(message.high))
        for axis, (low, high) in enumerate(zip(transform.low, transform.high, strict=True)):
            if not low <= high or low == math.inf or high == -math.inf:
                raise BadSpec(f"action transform: bounds [{low}, {high}] of axis {axis} are not an interval")
        return transform
