"""Spaces as specs: converts observations to arrays of the wire's types, and a policy's choices to actions."""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.limits import MAX_DESCRIPTION_LENGTH, MAX_PATH
from rollcast.specs import ActionSpec, ObservationSpec

from actor_client.envs.base import FloatArray, IntArray, Observations
from actor_client.envs.errors import UnsupportedSpace
from actor_client.envs.tensors import as_array, is_tensor

SUPPORTED_ACTIONS: Final = "Discrete, MultiDiscrete, MultiBinary and Box"

_log = structlog.get_logger(__name__)


class ActionPlan:
    """Converts a policy's choices to actions of one space.

    Args:
        spec: The declared spec.
        shape: Shape of one action of the environment.
        dtype: Type of one action.
        start: Added to discrete choices, [*shape]; None = nothing.
        low: Lower bounds of continuous actions, [*shape]; None for a discrete space.
        high: Upper bounds of continuous actions.

    Attributes:
        spec: The declared spec.
        start: Added to discrete choices; None = nothing.
    """

    def __init__(
        self,
        spec: ActionSpec,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        start: NDArray[np.int64] | None = None,
        low: NDArray[Any] | None = None,
        high: NDArray[Any] | None = None,
    ) -> None:
        self.spec = spec
        self._shape = shape
        self._dtype = dtype
        self.start = start if start is not None and start.any() else None
        self._low = low
        self._high = high

    @property
    def conversions(self) -> list[tuple[str, Any]]:
        """First action, type and shape, which a spec does not describe."""
        return [("first action", self.start), ("type of actions", self._dtype), ("shape of actions", self._shape)]

    def batch(self, continuous: FloatArray | None, discrete: IntArray | None) -> NDArray[Any]:
        """Returns the actions of E environments, [E, *shape], in the space's dtype.

        Continuous actions are clipped to the space, because unbounded axes and rounding may leave it, and rounded if
        the space holds integers. NaN becomes 0: an observation with NaN costs its episode, and not the environment.

        Args:
            continuous: float32 [E, n], transformed; None for a discrete space.
            discrete: int32 [E, b], counted from 0; None for a Box.
        """
        if discrete is not None:
            choices = discrete.reshape(len(discrete), *self._shape)
            return (choices if self.start is None else choices + self.start).astype(self._dtype)
        if continuous is None:
            raise ValueError("the policy returned neither continuous nor discrete actions")
        actions = continuous.reshape(len(continuous), *self._shape)
        if not np.isfinite(actions).all():  # chosen on an observation with NaN
            actions = np.nan_to_num(actions, nan=0.0)
        if self._dtype.kind in "iu":
            actions = np.rint(actions)
        # In float64, because float32 bounds of a large integer type are not exact.
        return np.clip(actions, self._low, self._high).astype(self._dtype)

    def singles(self, continuous: FloatArray | None, discrete: IntArray | None) -> list[Any]:
        """Returns one action per environment, of the type that sampling the space gives: numpy scalars or arrays.

        For Discrete that is `np.int64`, which gymnasium checks 0.4 microseconds faster than a Python integer.
        """
        return list(self.batch(continuous, discrete))


def plan_actions(space: Any) -> ActionPlan:
    """Returns the plan of an action space.

    Args:
        space: The action space of one environment.

    Raises:
        UnsupportedSpace: See the class.
    """
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    if isinstance(space, spaces.Discrete):
        start = np.full((), int(space.start), np.int64)
        spec = ActionSpec(discrete_branches=(int(space.n),), first_choices=_numbers(start))
        return ActionPlan(spec, (), np.dtype(np.int64), start=start)
    if isinstance(space, spaces.MultiDiscrete):
        branches = tuple(map(int, space.nvec.ravel()))
        start = np.asarray(space.start, np.int64)
        spec = ActionSpec(discrete_branches=branches, first_choices=_numbers(start))
        return ActionPlan(spec, space.shape, space.dtype, start=start)
    if isinstance(space, spaces.MultiBinary):
        branches = (2,) * math.prod(space.shape)
        return ActionPlan(ActionSpec(discrete_branches=branches), space.shape, space.dtype)
    if isinstance(space, spaces.Box) and 0 not in space.shape:
        return plan_box(space)
    raise UnsupportedSpace(
        f"the action space is {space}; supported are {SUPPORTED_ACTIONS}. Wrap the environment, for example in "
        f"gymnasium.wrappers.TransformAction"
    )


def _numbers(start: NDArray[np.int64]) -> tuple[int, ...]:
    """Returns the first number of each choice for a spec: none if all are 0."""
    return tuple(start.ravel().tolist()) if start.any() else ()


def plan_box(space: Any) -> ActionPlan:
    """Returns the plan of a Box, or of anything else with its shape, type and bounds: an axis for each number."""
    with np.errstate(over="ignore"):  # A bound beyond float32 means no bound.
        low, high = space.low.astype(np.float32).ravel(), space.high.astype(np.float32).ravel()
    unbounded = np.flatnonzero(~(np.isfinite(low) & np.isfinite(high)))
    if unbounded.size:
        _log.warning(
            "action_axes_without_bounds",
            axes=unbounded.tolist()[:16],
            consequence="these actions are the policy's raw draws, about -3 to 3; wrap the environment to scale them",
        )
    spec = ActionSpec(
        continuous_size=low.size, continuous_low=tuple(low.tolist()), continuous_high=tuple(high.tolist())
    )
    return ActionPlan(spec, space.shape, space.dtype, low=space.low, high=space.high)


MOST_ENTITIES = "max_length"
"""The attribute of a space with the largest number of entities; gymnasium's spaces have none."""


def entities_spec(name: str, space: Any) -> ObservationSpec:
    """Returns the spec of a `gymnasium.spaces.Sequence`: ``[max_length, size + 1]`` float32.

    The last number of each entity is 1, so that an entity of small numbers is not taken for padding.

    Raises:
        UnsupportedSpace: Its entities are no Boxes, or the largest number of entities is not given.
    """
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    entity, most = space.feature_space, getattr(space, MOST_ENTITIES, None)
    if not isinstance(entity, spaces.Box) or 0 in entity.shape:
        raise UnsupportedSpace(f"observation {name} is a list of {entity}; only lists of non-empty Boxes can be sent")
    if not isinstance(most, int) or most < 1:
        raise UnsupportedSpace(
            f"observation {name} is a list without a largest length: set it as an attribute of the space, as in "
            f"space.{MOST_ENTITIES} = 20"
        )
    return ObservationSpec(name, np.dtype(np.float32), (most, math.prod(entity.shape) + 1), ObservationKind.ENTITIES)


def padded(name: str, lists: Sequence[Any], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Returns B lists as one array ``[B, most, size + 1]``: a 1 after each entity, and zeros after the last one.

    Args:
        name: Name of the observation, for messages.
        lists: The list of each environment, ``[n, ...]`` or n arrays; it may be empty.
        shape: The largest number of entities, and their size with the 1.

    Raises:
        ValueError: A list is too long, or its entities have another size.
    """
    most, size = shape[0], shape[1] - 1
    values = np.zeros((len(lists), *shape), np.float32)
    for row, entities in zip(values, lists, strict=True):
        count = len(entities)
        if count > most:
            raise ValueError(f"observation {name} has {count} entities; its space allows at most {most}")
        if count:
            found = np.asarray(entities, np.float32).reshape(count, -1)
            if found.shape[1] != size:
                raise ValueError(
                    f"observation {name} has entities of {found.shape[1]} numbers; its space has entities of {size}"
                )
            row[:count, :size] = found
            row[:count, size] = 1.0
    return values


ROOT_NAME: Final = "obs"
"""The name of an observation that is not in a Dict or Tuple."""
MAX_NAME_LENGTH: Final = 64
MIN_PICTURE_SIDE: Final = 20
"""A matrix with both sides at least this long is a picture; the simple encoder accepts no smaller ones."""
MIN_IMAGE_SIDE: Final = 5
"""An array of three axes with a shorter side is not an image; no encoder accepts smaller images."""
CHANNEL_COUNTS: Final = (1, 3, 4)
BYTE_SCALE: Final = 255.0

LAYOUT: Final = "layout"
"""The attribute of a Box that marks a picture or planes of a board and gives the order of its axes: CHW or HWC."""

LAYOUTS: Final = (ImageLayout.CHW.name, ImageLayout.HWC.name)

SUPPORTED: Final = "Box, Discrete, MultiDiscrete, MultiBinary, Sequence of Box, and Dict and Tuple of them"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of an observation.

    Attributes:
        spec: The declared spec.
        path: Keys of its place in Dicts and Tuples.
        shape: Shape in the environment, without a batch axis.
        start: Subtracted from values, so that categories count from 0; None = nothing.
        order: Axes of the environment's array, without a batch axis, in the order of the wire; empty = the same.
    """

    spec: ObservationSpec
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    start: NDArray[np.int64] | None = None
    order: tuple[int, ...] = ()

    def encode(self, observations: Sequence[Any]) -> NDArray[Any]:
        """Returns B observations in the wire's type, a new array [B, *spec.shape].

        Args:
            observations: B whole observations of the environment.

        Raises:
            ValueError: An array has another shape than the space.
        """
        for key in self.path:
            observations = [observation[key] for observation in observations]
        return self._encode(observations)

    def encode_batch(self, observations: Any) -> NDArray[Any]:
        """Encodes one observation whose leaves, arrays or tensors, have a batch axis of B; see `encode`."""
        values = self.find(observations)
        return self._encode(as_array(values) if is_tensor(values) else values)

    def find(self, observation: Any) -> Any:
        """Returns this leaf of one observation of the environment."""
        for key in self.path:
            observation = observation[key]
        return observation

    def _encode(self, observations: Any) -> NDArray[Any]:
        if self.spec.kind is ObservationKind.ENTITIES:
            return padded(self.spec.name, observations, self.spec.shape)
        return self._finish(np.array(observations, None if self.start is not None else self.spec.dtype))

    def _finish(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.shape[1:] != self.shape:
            raise ValueError(
                f"observation {self.spec.name} has shape {list(values.shape[1:])}; its space has {list(self.shape)}"
            )
        if self.start is not None:
            values = (values - self.start).astype(self.spec.dtype)
        if self.order:
            values = values.transpose(0, *(axis + 1 for axis in self.order))
        return values if self.shape == self.spec.shape else values.reshape(len(values), *self.spec.shape)


class ObservationPlan:
    """Encodes the observations of one space.

    Args:
        space: The observation space of one environment.

    Raises:
        UnsupportedSpace: See the class.
    """

    def __init__(self, space: Any) -> None:
        self.leaves = named_leaves(_parts(space, ()), _leaf)
        self.specs = tuple(leaf.spec for leaf in self.leaves)

    def encode(self, observations: Sequence[Any]) -> Observations:
        """Returns one array per leaf, [B, *shape], of B whole observations; see `Leaf.encode`."""
        return [leaf.encode(observations) for leaf in self.leaves]

    def encode_batch(self, observations: Any) -> Observations:
        """Encodes one observation whose leaves have a batch axis; see `Leaf.encode_batch`."""
        return [leaf.encode_batch(observations) for leaf in self.leaves]


def named_leaves(
    parts: Iterable[tuple[tuple[Any, ...], Any]], leaf_of: Callable[[str, tuple[Any, ...], Any], Leaf]
) -> tuple[Leaf, ...]:
    """Returns the leaves of the parts of an observation, each with a valid name of its own.

    Args:
        parts: The path and the space of each.
        leaf_of: Makes the leaf of a name, a path and a space.
    """
    leaves: list[Leaf] = []
    taken: set[str] = set()
    for path, part in parts:
        name = _name(path, taken)
        taken.add(name)
        leaf = leaf_of(name, path, part)
        leaves.append(replace(leaf, spec=replace(leaf.spec, path=_declared(path))))
    return tuple(leaves)


def _parts(space: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yields the path and space of every leaf, depth first, in the order of the space."""
    from gymnasium import spaces  # noqa: PLC0415 - environments are made after the command line is read

    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            yield from _parts(part, (*path, key))
    elif isinstance(space, spaces.Tuple):
        for position, part in enumerate(space.spaces):
            yield from _parts(part, (*path, position))
    else:
        yield path, space


def _declared(path: tuple[Any, ...]) -> tuple[str | int, ...]:
    """Returns a path as a spec declares it; empty if it has a key that a spec cannot hold."""
    keys = tuple(int(key) if isinstance(key, int | np.integer) else key for key in path)
    fits = len(keys) <= MAX_PATH and all(
        0 <= key < 2**32 if isinstance(key, int) else isinstance(key, str) and _is_text(key) for key in keys
    )
    return keys if fits else ()


def _is_text(key: str) -> bool:
    surrogates = any("\ud800" <= character <= "\udfff" for character in key)  # which UTF-8 cannot hold
    return len(key) <= MAX_DESCRIPTION_LENGTH and not surrogates


def _name(path: tuple[Any, ...], taken: set[str]) -> str:
    """Returns a valid name that no other leaf has."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(map(str, path)))[:MAX_NAME_LENGTH] or ROOT_NAME
    numbered = (plain[: MAX_NAME_LENGTH - len(suffix)] + suffix for suffix in map("_{}".format, itertools.count(2)))
    return next(name for name in itertools.chain([plain], numbered) if name not in taken)


def _leaf(name: str, path: tuple[Any, ...], space: Any) -> Leaf:
    from gymnasium import spaces  # noqa: PLC0415 - see _parts

    if isinstance(space, spaces.Box):
        if 0 in space.shape:
            raise UnsupportedSpace(f"observation {name}: {space} has an empty axis; remove it from the space")
        return box_leaf(name, path, space)
    if isinstance(space, spaces.Discrete):
        start = np.full((), int(space.start), np.int64)
        return Leaf(_categorical(name, (int(space.n),), start), path, (), start)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return Leaf(_categorical(name, tuple(map(int, space.nvec.ravel())), start), path, space.shape, start)
    if isinstance(space, spaces.MultiBinary):
        spec = ObservationSpec(
            name, np.dtype(np.float32), (math.prod(space.shape),), ObservationKind.VECTOR, bounds=(0.0, 1.0)
        )
        return Leaf(spec, path, space.shape)
    if isinstance(space, spaces.Sequence):
        spec = entities_spec(name, space)
        return Leaf(spec, path, spec.shape)
    raise UnsupportedSpace(
        f"observation {name} has the space {space}; supported are {SUPPORTED}. Wrap the environment, for example in "
        f"gymnasium.wrappers.TransformObservation"
    )


def _categorical(name: str, categories: tuple[int, ...], start: NDArray[np.int64]) -> ObservationSpec:
    return ObservationSpec(
        name,
        np.dtype(np.int32),
        (len(categories),),
        ObservationKind.CATEGORICAL,
        categories=categories,
        first_categories=_numbers(start),
    )


def box_leaf(name: str, path: tuple[Any, ...], space: Any) -> Leaf:
    """Returns the leaf of a Box, an image or numbers by shape. Byte images stay bytes; all else becomes float32."""
    shape = tuple(map(int, space.shape))
    scale = BYTE_SCALE if float(np.max(space.high)) == BYTE_SCALE else 0.0
    image = _told_layout(name, space, shape) or _image_shape(shape)
    order: tuple[int, ...] = ()
    if image is None and len(shape) == 4 and (frame := _image_shape(shape[1:])) is not None:
        image, order = _in_channels(shape[0], *frame)
    bounds = _bounds(space)
    if image is None:
        spec = ObservationSpec(
            name, np.dtype(np.float32), (math.prod(shape),), ObservationKind.VECTOR, scale=scale, bounds=bounds
        )
        return Leaf(spec, path, shape)
    dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
    spec = ObservationSpec(name, dtype, image[0], ObservationKind.IMAGE, layout=image[1], scale=scale, bounds=bounds)
    return Leaf(spec, path, shape, order=order)


def _bounds(space: Any) -> tuple[float, float] | None:
    """Returns the least and the largest value of a Box; None if one is infinite as float32."""
    with np.errstate(over="ignore"):
        low, high = float(np.float32(np.min(space.low))), float(np.float32(np.max(space.high)))
    return (low, high) if math.isfinite(low) and math.isfinite(high) and low <= high else None


def _in_channels(
    count: int, shape: tuple[int, ...], layout: ImageLayout
) -> tuple[tuple[tuple[int, ...], ImageLayout], tuple[int, ...]]:
    """Returns shape and layout of stacked images as one, the oldest first, and the order of axes that makes it.

    Gymnasium's FrameStackObservation adds the axis of frames in front; `--frame-stack` stacks in channels.
    """
    if layout is ImageLayout.HWC:
        return ((*shape[:2], count * shape[2]), layout), (1, 2, 0, 3)
    return ((count * shape[0], *shape[1:]), layout), ()


def _told_layout(name: str, space: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ImageLayout] | None:
    """Returns the shape and layout that a Box declares by its attribute; None without it."""
    layout = getattr(space, LAYOUT, None)
    if layout is None:
        return None
    if layout not in LAYOUTS or len(shape) != 3:
        raise UnsupportedSpace(
            f"observation {name} has {LAYOUT} {layout!r} and the shape {list(shape)}; the layout must be CHW or "
            "HWC, and the shape must have three axes"
        )
    return shape, ImageLayout[layout]


def _image_shape(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ImageLayout] | None:
    """Returns the shape with a channel axis and the layout if the shape looks like an image, otherwise None.

    The channel axis is the last one if it has 1, 3 or 4 entries, otherwise the first one if that has 1, 3 or 4,
    otherwise the shorter of both.
    """
    if len(shape) == 2 and min(shape) >= MIN_PICTURE_SIDE:
        return (*shape, 1), ImageLayout.HWC
    if len(shape) != 3:
        return None
    first, last = shape[0], shape[2]
    channels_last = last in CHANNEL_COUNTS or (first not in CHANNEL_COUNTS and last <= first)
    sides = shape[:2] if channels_last else shape[1:]
    if min(sides) < MIN_IMAGE_SIDE:
        return None
    return shape, ImageLayout.HWC if channels_last else ImageLayout.CHW
