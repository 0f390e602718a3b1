"""Observation spaces as observation specs, and observations as arrays of the wire's types."""

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import ObservationSpec

from actor_client.envs.base import Observations
from actor_client.envs.entities import entities_spec, padded
from actor_client.envs.errors import UnsupportedSpace

ROOT_NAME: Final = "obs"
"""The name of an observation that is not part of a Dict or Tuple."""
MAX_NAME_LENGTH: Final = 64
MIN_PICTURE_SIDE: Final = 20
"""A matrix with both sides at least this long is taken for a picture: the smallest that the simple encoder takes."""
MIN_IMAGE_SIDE: Final = 5
"""An array of three axes with a shorter side is taken for numbers: no encoder takes so small an image."""
CHANNEL_COUNTS: Final = (1, 3, 4)
BYTE_SCALE: Final = 255.0

LAYOUT: Final = "layout"
"""The attribute of a Box that says that it is a picture or planes of a board, and the order of its axes: CHW or HWC."""

LAYOUTS: Final = (ImageLayout.CHW.name, ImageLayout.HWC.name)

SUPPORTED: Final = "Box, Discrete, MultiDiscrete, MultiBinary, Sequence of Box, and Dict and Tuple of them"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One array of an observation.

    Attributes:
        spec: As declared.
        path: Keys that lead to it through Dicts and Tuples.
        shape: As the environment returns it, without a batch axis.
        start: Subtracted from what the environment returns, so that categories count from 0; None = nothing.
    """

    spec: ObservationSpec
    path: tuple[Any, ...]
    shape: tuple[int, ...]
    start: NDArray[np.int64] | None = None

    def encode(self, observations: Sequence[Any]) -> NDArray[Any]:
        """Returns the arrays of B observations in the wire's type, a new array [B, *spec.shape].

        Args:
            observations: B whole observations as the environment returned them.

        Raises:
            ValueError: An array has another shape than the space.
        """
        for key in self.path:
            observations = [observation[key] for observation in observations]
        return self._encode(observations)

    def encode_batch(self, observations: Any) -> NDArray[Any]:
        """Does the same with one observation whose leaves have a batch axis."""
        for key in self.path:
            observations = observations[key]
        return self._encode(observations)

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
        return values if self.shape == self.spec.shape else values.reshape(len(values), *self.spec.shape)


class ObservationPlan:
    """How the observations of one space travel.

    Args:
        space: The observation space of one environment.

    Raises:
        UnsupportedSpace: See the class.
    """

    __slots__ = ("leaves", "specs")

    def __init__(self, space: Any) -> None:
        leaves: list[Leaf] = []
        taken: set[str] = set()
        for path, part in _parts(space, ()):
            name = _name(path, taken)
            taken.add(name)
            leaves.append(_leaf(name, path, part))
        self.leaves = tuple(leaves)
        self.specs = tuple(leaf.spec for leaf in leaves)

    def encode(self, observations: Sequence[Any]) -> Observations:
        """Returns one array a leaf, [B, *shape], of B whole observations; see `Leaf.encode`."""
        return [leaf.encode(observations) for leaf in self.leaves]

    def encode_batch(self, observations: Any) -> Observations:
        """Does the same with one observation whose leaves have a batch axis."""
        return [leaf.encode_batch(observations) for leaf in self.leaves]


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


def _name(path: tuple[Any, ...], taken: set[str]) -> str:
    """Returns a name that the wire allows and that no other leaf has."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", ".".join(map(str, path)))[:MAX_NAME_LENGTH] or ROOT_NAME
    numbered = (plain[: MAX_NAME_LENGTH - len(suffix)] + suffix for suffix in map("_{}".format, itertools.count(2)))
    return next(name for name in itertools.chain([plain], numbered) if name not in taken)


def _leaf(name: str, path: tuple[Any, ...], space: Any) -> Leaf:
    from gymnasium import spaces  # noqa: PLC0415 - see _parts

    if isinstance(space, spaces.Box):
        if 0 in space.shape:
            raise UnsupportedSpace(f"observation {name}: {space} has an empty axis; remove it from the space")
        return _box(name, path, space)
    if isinstance(space, spaces.Discrete):
        start = np.full((), int(space.start), np.int64)
        return Leaf(_categorical(name, (int(space.n),)), path, (), start)
    if isinstance(space, spaces.MultiDiscrete):
        start = np.asarray(space.start, np.int64)
        return Leaf(_categorical(name, tuple(map(int, space.nvec.ravel()))), path, space.shape, start)
    if isinstance(space, spaces.MultiBinary):
        spec = ObservationSpec(name, np.dtype(np.float32), (math.prod(space.shape),), ObservationKind.VECTOR)
        return Leaf(spec, path, space.shape)
    if isinstance(space, spaces.Sequence):
        spec = entities_spec(name, space)
        return Leaf(spec, path, spec.shape)
    raise UnsupportedSpace(
        f"observation {name} has the space {space}; supported are {SUPPORTED}. Wrap the environment, for example in "
        f"gymnasium.wrappers.TransformObservation"
    )


def _categorical(name: str, categories: tuple[int, ...]) -> ObservationSpec:
    kind = ObservationKind.CATEGORICAL
    return ObservationSpec(name, np.dtype(np.int32), (len(categories),), kind, categories=categories)


def _box(name: str, path: tuple[Any, ...], space: Any) -> Leaf:
    """A Box is an image or numbers, by its shape. Bytes of images stay bytes; all else travels as float32."""
    shape = tuple(map(int, space.shape))
    scale = BYTE_SCALE if float(np.max(space.high)) == BYTE_SCALE else 0.0
    image = _told_layout(name, space, shape) or _image_shape(shape)
    if image is None:
        spec = ObservationSpec(name, np.dtype(np.float32), (math.prod(shape),), ObservationKind.VECTOR, scale=scale)
        return Leaf(spec, path, shape)
    dtype = np.dtype(np.uint8 if space.dtype == np.uint8 else np.float32)
    spec = ObservationSpec(name, dtype, image[0], ObservationKind.IMAGE, layout=image[1], scale=scale)
    return Leaf(spec, path, shape)


def _told_layout(name: str, space: Any, shape: tuple[int, ...]) -> tuple[tuple[int, ...], ImageLayout] | None:
    """Returns the shape and layout of a Box that says by an attribute what it is; None if it says nothing."""
    layout = getattr(space, LAYOUT, None)
    if layout is None:
        return None
    if layout not in LAYOUTS or len(shape) != 3:
        raise UnsupportedSpace(
            f"observation {name} has {LAYOUT} {layout!r} and the shape {list(shape)}; it may be CHW or HWC, of three axes"
        )
    return shape, ImageLayout[layout]


def _image_shape(shape: tuple[int, ...]) -> tuple[tuple[int, ...], ImageLayout] | None:
    """Returns the shape with a channel axis and the layout of what looks like an image, else None.

    The channel axis is the last if it has 1, 3 or 4 entries, else the first if that has, else the shorter of the two.
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
