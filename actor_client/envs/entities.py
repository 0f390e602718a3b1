"""Lists of any number of entities: what a space of sequences becomes, filled up with zeros, which no entity is."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ObservationKind
from rollcast.specs import ObservationSpec

from actor_client.envs.errors import UnsupportedSpace

MOST_ENTITIES = "max_length"
"""The attribute of a space that says how many entities there are at most; gymnasium's has no word for it."""


def entities_spec(name: str, space: Any) -> ObservationSpec:
    """Returns how a `gymnasium.spaces.Sequence` travels: ``[max_length, size]`` float32.

    Raises:
        UnsupportedSpace: its entities are no Boxes, or nobody says how many there are at most.
    """
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    entity, most = space.feature_space, getattr(space, MOST_ENTITIES, None)
    if not isinstance(entity, spaces.Box) or 0 in entity.shape:
        raise UnsupportedSpace(
            f"observation {name} is a list of {entity}; lists of Boxes that are not empty can be sent"
        )
    if not isinstance(most, int) or most < 1:
        raise UnsupportedSpace(
            f"observation {name} is a list, and nobody says how long it can become: set an attribute of the space, as in "
            f"space.{MOST_ENTITIES} = 20"
        )
    return ObservationSpec(name, np.dtype(np.float32), (most, math.prod(entity.shape)), ObservationKind.ENTITIES)


def padded(name: str, lists: Sequence[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Returns B lists as one array ``[B, most, size]``, zeros behind the entities.

    Args:
        name: of the observation, for messages.
        lists: of each environment, ``[n, ...]`` or n arrays; none is an empty list.
        shape: most, size.

    Raises:
        ValueError: a list is too long, or its entities have another size.
    """
    most, size = shape
    values = np.zeros((len(lists), most, size), np.float32)
    for row, entities in zip(values, lists, strict=True):
        count = len(entities)
        if count > most:
            raise ValueError(f"observation {name} has {count} entities; its space says {most} at most")
        if count:
            found = np.asarray(entities, np.float32).reshape(count, -1)
            if found.shape[1] != size:
                raise ValueError(f"observation {name} has entities of {found.shape[1]} numbers; its space says {size}")
            row[:count] = found
    return values
