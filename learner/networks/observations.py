"""Kinds of observations, and the error of those that no network can read."""

from __future__ import annotations

from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ObservationSpec

from learner.common.exits import ExitCode, UserError


class ObservationError(UserError):
    """No network can be built for observations under the settings of the run file.

    Args:
        fault: one line that states the value, the limit and the next step.
        observation: the name of the one that cannot be read; empty where it is all of them together.
    """

    def __init__(self, fault: str, observation: str = "") -> None:
        super().__init__(ExitCode.RUN_FILE, fault)
        self.observation = observation


def is_entities(spec: ObservationSpec) -> bool:
    """Returns whether an observation is a list of entities ``[max, size]``."""
    return spec.kind is ObservationKind.ENTITIES and len(spec.shape) == 2


def is_picture(spec: ObservationSpec) -> bool:
    """Returns whether an observation is read by convolutions."""
    return spec.kind is ObservationKind.IMAGE and len(spec.shape) == 3


def is_channels_first(spec: ObservationSpec) -> bool:
    """Returns whether the planes of a picture are its first axis."""
    return spec.layout == ImageLayout.CHW


def picture_size(spec: ObservationSpec) -> tuple[int, int, int]:
    """Returns height, width and channels of a picture of either layout."""
    first, second, third = spec.shape
    return (second, third, first) if is_channels_first(spec) else (first, second, third)
