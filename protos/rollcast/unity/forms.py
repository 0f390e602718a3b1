"""Converts Unity's observations and actions to this project's specs, and finds the order of a picture's axes."""

import re
from typing import Final

import numpy as np

from rollcast import limits
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.errors import BadSpec
from rollcast.specs import ActionSpec, ObservationSpec
from rollcast.unity.communicator_objects import behavior_pb2, observation_pb2

PICTURE_SCALE: Final = 255.0
"""Scale of pictures: they stay bytes, which costs a quarter on the wire, and networks see 255 as 1."""
CHANNEL_COUNTS: Final = (1, 3, 4)
CHANNELS_FIRST_SINCE_MAJOR: Final = 3
"""Major version of the first packages that send pictures as [C, H, W] (3.0.0-exp.1); older ones send [H, W, C]."""

_NONE: Final = DimensionProperty.NONE
_MOVES: Final = DimensionProperty.TRANSLATIONAL_EQUIVARIANCE
_SIZED: Final = DimensionProperty.VARIABLE_SIZE
_UNSAID: Final = DimensionProperty.UNSPECIFIED
_WIRE_PROPERTIES: Final = {0: _UNSAID, 1: _NONE, 2: _MOVES, 4: _SIZED}


def observation_spec(
    observation: observation_pb2.ObservationProto, name: str, package_version: str = ""
) -> ObservationSpec:
    """Returns the spec of one sensor; pictures are always [C, H, W], whatever the package sends.

    Raises:
        BadSpec: The shape or its properties do not occur in Unity.
    """
    shape, properties = _dimensions(observation)
    packed = observation.compression_type == observation_pb2.PNG
    role = (
        ObservationRole.GOAL if observation.observation_type == observation_pb2.GOAL_SIGNAL else ObservationRole.DEFAULT
    )
    layout = picture_layout(shape, properties, package_version)
    if layout is None:
        if packed:
            raise BadSpec(f"is sent as PNG, but its shape {list(shape)} is not that of an image")
        entities = properties == (_SIZED, _NONE)
        kind = ObservationKind.ENTITIES if entities else ObservationKind.VECTOR
        return ObservationSpec(name, np.dtype(np.float32), shape, kind, role, dimension_properties=properties)
    dtype = np.dtype(np.uint8 if packed else np.float32)
    return ObservationSpec(
        name,
        dtype,
        shape if layout is ImageLayout.CHW else (shape[2], shape[0], shape[1]),
        ObservationKind.IMAGE,
        role,
        ImageLayout.CHW,
        scale=PICTURE_SCALE if packed else 0.0,
        dimension_properties=(_NONE, _MOVES, _MOVES),
    )


def wire_layout(observation: observation_pb2.ObservationProto, package_version: str) -> ImageLayout | None:
    """Returns the player's order of an observation's axes; None if it is not a picture.

    Raises:
        BadSpec: See `observation_spec`.
    """
    return picture_layout(*_dimensions(observation), package_version)


def picture_layout(
    shape: tuple[int, ...], properties: tuple[DimensionProperty, ...], package_version: str
) -> ImageLayout | None:
    """Returns the player's order of a picture's axes; None if the shape is not a picture's.

    The properties determine the order if there are any, otherwise the package's version, otherwise the axis whose
    size can be a number of channels.
    """
    if len(shape) != 3:
        return None
    if properties:
        if properties == (_NONE, _MOVES, _MOVES):
            return ImageLayout.CHW
        return ImageLayout.HWC if properties == (_MOVES, _MOVES, _NONE) else None
    major = re.match(r"[0-9]{1,4}(?=\.)", package_version)
    if major is not None:
        return ImageLayout.CHW if int(major.group()) >= CHANNELS_FIRST_SINCE_MAJOR else ImageLayout.HWC
    return ImageLayout.HWC if shape[2] in CHANNEL_COUNTS and shape[0] not in CHANNEL_COUNTS else ImageLayout.CHW


def action_spec(brain: behavior_pb2.BrainParametersProto) -> ActionSpec:
    """Returns the actions of agents; from the old fields if the player's API is older than 1.3.

    Raises:
        BadSpec: A size is negative, or continuous actions have more than one size.
    """
    told = brain.action_spec
    size, branches, texts = told.num_continuous_actions, told.discrete_branch_sizes[:], told.action_descriptions
    if not brain.HasField("action_spec"):
        old, texts = brain.vector_action_size_deprecated[:], brain.vector_action_descriptions_deprecated
        continuous = brain.vector_action_space_type_deprecated == behavior_pb2.continuous
        if continuous and len(old) != 1:
            raise BadSpec(f"{len(old)} sizes of continuous actions; 1 is needed")
        size, branches = (old[0], []) if continuous else (0, old)
    if size < 0 or any(branch < 0 for branch in branches):
        raise BadSpec(f"{size} continuous actions and branches {branches[:16]}; sizes must not be negative")
    if size > limits.MAX_CONTINUOUS_ACTIONS or len(branches) > limits.MAX_BRANCHES:
        return ActionSpec(size, tuple(branches))
    readable = len(texts) == size + len(branches) and all(len(text) <= limits.MAX_DESCRIPTION_LENGTH for text in texts)
    return ActionSpec(size, tuple(branches), descriptions=tuple(texts) if readable else ())


def _dimensions(
    observation: observation_pb2.ObservationProto,
) -> tuple[tuple[int, ...], tuple[DimensionProperty, ...]]:
    shape, flags = observation.shape[: limits.MAX_RANK], observation.dimension_properties[: limits.MAX_RANK]
    if not shape or min(shape) < 1:
        raise BadSpec(f"its shape {shape} must have axes of at least 1")
    if observation.compression_type not in (observation_pb2.NONE, observation_pb2.PNG):
        raise BadSpec(f"compression {observation.compression_type} is unknown; NONE (0) and PNG (1) can be read")
    # Unknown flags, too few flags, or zeros carry no information.
    known = any(flags) and len(flags) == len(shape) and all(flag in _WIRE_PROPERTIES for flag in flags)
    return tuple(shape), tuple(_WIRE_PROPERTIES[flag] for flag in flags) if known else ()
