"""Reads and checks the actions of a demonstration's records."""

from rollcast.demonstrations.sensors import LARGEST
from rollcast.specs import ActionSpec
from rollcast.unity.communicator_objects.agent_pb2 import AgentActionProto


class BadAction(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A record's action cannot be used; the text gives the reason."""


def read_action(told: AgentActionProto, ours: ActionSpec) -> list[float]:
    """Returns whether a record has an action (1 or 0), then its axes and its choices, [1 + n + b].

    Files from before API version 1.3 have axes and choices in one field.

    Args:
        told: The record's action.
        ours: The actions of the run's behavior.

    Raises:
        BadAction: The action does not match the behavior.
    """
    size = ours.continuous_size
    axes: list[float] = list(told.continuous_actions)
    choices: list[float] = list(told.discrete_actions)
    if not axes and not choices:
        old = list(told.vector_actions_deprecated)
        axes, choices = old[:size], old[size:]
    if not axes and not choices:
        return [0.0] * (1 + ours.factors)
    if (len(axes), len(choices)) != (size, len(ours.discrete_branches)):
        raise BadAction(
            f"the record has {len(axes)} continuous and {len(choices)} discrete actions; the run's behavior has "
            f"{size} and {len(ours.discrete_branches)}"
        )
    for axis, value in enumerate(axes):
        if not abs(value) <= LARGEST:  # also true for NaN
            raise BadAction(f"continuous action {axis} is {value}; it must be finite and at most {LARGEST:g} in size")
    for branch, (value, count) in enumerate(zip(choices, ours.discrete_branches, strict=True)):
        if not 0 <= value < count or value != int(value):
            raise BadAction(f"discrete action {branch} is {value}; it must be a whole number below {count}")
    return [1.0, *axes, *choices]
