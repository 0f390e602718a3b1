"""Kinds of observations, those that a policy reads, and the error for unsupported ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ObservationSpec

from learner.shared.exits import ExitCode, UserError


class ObservationError(UserError):
    """No network can be built for observations under the settings of the run file.

    Args:
        fault: One line that states the value, the limit and the next step.
        observation: Name of the unsupported observation; empty if it concerns all of them.
    """

    def __init__(self, fault: str, observation: str = "") -> None:
        super().__init__(ExitCode.RUN_FILE, fault)
        self.observation = observation


def policy_places(specs: Sequence[ObservationSpec], critic_only: Collection[str]) -> tuple[int, ...]:
    """Returns the indices of the observations that a policy reads.

    Args:
        specs: All observations of the behavior.
        critic_only: Names of the observations that it does not read.

    Raises:
        ObservationError: A name is not that of an observation, or none is left.
    """
    names = [spec.name for spec in specs]
    unknown = sorted(set(critic_only).difference(names))
    if unknown:
        raise ObservationError(
            f"network_settings.critic_only names {unknown[0]!r}, but the observations are {', '.join(names)}: write one "
            "of these names",
            unknown[0],
        )
    places = tuple(index for index, name in enumerate(names) if name not in critic_only)
    if not places:
        raise ObservationError(
            f"network_settings.critic_only names all observations ({', '.join(names)}), which leaves none to the policy: "
            "take one out"
        )
    return places


def is_entities(spec: ObservationSpec) -> bool:
    """Returns whether an observation is a list of entities ``[max, size]``."""
    return spec.kind is ObservationKind.ENTITIES and len(spec.shape) == 2


def is_picture(spec: ObservationSpec) -> bool:
    """Returns whether convolutions read an observation."""
    return spec.kind is ObservationKind.IMAGE and len(spec.shape) == 3


def is_channels_first(spec: ObservationSpec) -> bool:
    """Returns whether the first axis of an image is its channels."""
    return spec.layout == ImageLayout.CHW


def picture_size(spec: ObservationSpec) -> tuple[int, int, int]:
    """Returns height, width and channels of an image in either layout."""
    first, second, third = spec.shape
    return (second, third, first) if is_channels_first(spec) else (first, second, third)
