"""Observations and actions of a behavior: values, their messages, and all checks of an untrusted declaration."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from rollcast import limits
from rollcast.enums import DimensionProperty, ImageLayout, ObservationKind, ObservationRole
from rollcast.errors import BadSpec
from rollcast.spec_checks import check_behavior
from rollcast.tensors import dtype_from_wire, dtype_to_wire
from rollcast.v1 import spec_pb2

# Names, types, shapes and lengths of the columns of a chunk with one segment of one row, without their data.
_COLUMN_OVERHEAD_BYTES = 2 * limits.MAX_RANK + 128
_CHUNK_OVERHEAD_BYTES = 4 * limits.KIB


@dataclass(frozen=True, slots=True)
class ObservationSpec:
    """One observation of one agent; see spec.proto.

    Attributes:
        name: Name, unique in the behavior.
        dtype: Type on the wire and of the graph input.
        shape: Shape without a batch axis.
        kind: Meaning of the observation.
        role: Use of the observation.
        layout: Order of axes, images only.
        categories: Number of categories of each element, CATEGORICAL only.
        scale: The value that the network sees as 1.0; 0 leaves values unchanged.
        dimension_properties: One per axis, or none.
        path: Keys of the Dicts and Tuples around it in the environment, from the outside.
        first_categories: The environment's number of category 0 of each element, or none for 0; CATEGORICAL only.
        bounds: Least and largest value in the environment; None where they are unknown or infinite.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    kind: ObservationKind = ObservationKind.VECTOR
    role: ObservationRole = ObservationRole.DEFAULT
    layout: ImageLayout = ImageLayout.UNSPECIFIED
    categories: tuple[int, ...] = ()
    scale: float = 0.0
    dimension_properties: tuple[DimensionProperty, ...] = ()
    path: tuple[str | int, ...] = ()
    first_categories: tuple[int, ...] = ()
    bounds: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Brings values to the form that they have after encoding and decoding, so that equal specs compare equal."""
        object.__setattr__(self, "dtype", np.dtype(self.dtype).newbyteorder("<"))
        object.__setattr__(self, "shape", tuple(int(axis) for axis in self.shape))
        object.__setattr__(self, "categories", tuple(int(count) for count in self.categories))
        object.__setattr__(self, "scale", float(np.float32(self.scale)))
        object.__setattr__(self, "path", tuple(self.path))
        object.__setattr__(self, "first_categories", tuple(int(number) for number in self.first_categories))
        if self.bounds is not None:
            object.__setattr__(self, "bounds", _float32s(self.bounds))

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        """Bytes of one observation."""
        return self.size * self.dtype.itemsize

    def to_message(self) -> spec_pb2.ObservationSpec:
        """Encodes the spec as a message."""
        return spec_pb2.ObservationSpec(
            name=self.name,
            dtype=dtype_to_wire(self.dtype),  # type: ignore[arg-type]
            shape=self.shape,
            kind=self.kind,  # type: ignore[arg-type]
            dimension_properties=self.dimension_properties,  # type: ignore[arg-type]
            role=self.role,  # type: ignore[arg-type]
            layout=self.layout,  # type: ignore[arg-type]
            categories=self.categories,
            scale=self.scale,
            path=[
                spec_pb2.ObservationKey(name=key) if isinstance(key, str) else spec_pb2.ObservationKey(index=key)
                for key in self.path
            ],
            first_categories=self.first_categories,
            low=None if self.bounds is None else self.bounds[0],
            high=None if self.bounds is None else self.bounds[1],
        )


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """The actions of an agent: continuous axes, discrete branches, or both; see spec.proto.

    Attributes:
        continuous_size: Number of continuous axes.
        discrete_branches: Number of choices of each branch.
        continuous_low: Lower bound of each continuous axis, or none for an environment that takes [-1, 1].
        continuous_high: See continuous_low.
        descriptions: Readable names, axes first, or none.
        first_choices: The environment's number of choice 0 of each branch, or none for 0.
    """

    continuous_size: int = 0
    discrete_branches: tuple[int, ...] = ()
    continuous_low: tuple[float, ...] = ()
    continuous_high: tuple[float, ...] = ()
    descriptions: tuple[str, ...] = ()
    first_choices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Brings values to the form that they have after encoding and decoding."""
        object.__setattr__(self, "discrete_branches", tuple(int(size) for size in self.discrete_branches))
        object.__setattr__(self, "continuous_low", _float32s(self.continuous_low))
        object.__setattr__(self, "continuous_high", _float32s(self.continuous_high))
        object.__setattr__(self, "descriptions", tuple(self.descriptions))
        object.__setattr__(self, "first_choices", tuple(int(number) for number in self.first_choices))

    @property
    def factors(self) -> int:
        """Number of columns of `log_prob`: continuous axes plus branches."""
        return self.continuous_size + len(self.discrete_branches)

    @property
    def mask_size(self) -> int:
        """Number of columns of `action_mask`: choices of all branches."""
        return sum(self.discrete_branches)

    def to_message(self) -> spec_pb2.ActionSpec:
        """Encodes the spec as a message."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return spec_pb2.ActionSpec(**values)


@dataclass(frozen=True, slots=True)
class BehaviorSpec:
    """Observations and actions of one behavior; see spec.proto.

    Attributes:
        name: Name without a team.
        observations: Observations in the order of the graph inputs.
        action: The actions.
        grouped: Agents share group rewards and end together.
    """

    name: str
    observations: tuple[ObservationSpec, ...]
    action: ActionSpec
    grouped: bool = False

    def __post_init__(self) -> None:
        """Converts the observations to a tuple."""
        object.__setattr__(self, "observations", tuple(self.observations))

    @property
    def step_bytes(self) -> int:
        """Largest size of the STEP columns of one row: observations, actions, mask, rewards and bookkeeping."""
        observed = sum(observation.size_bytes for observation in self.observations)
        acted = 4 * self.action.continuous_size + 4 * len(self.action.discrete_branches)
        # reward, group_reward, version_offset, group_step: 4 bytes each; action_source: 1
        return observed + acted + 4 * self.action.factors + self.action.mask_size + 17

    @property
    def segment_bytes(self) -> int:
        """Largest size of the SEGMENT and FINAL columns of one segment."""
        observed = sum(observation.size_bytes for observation in self.observations)
        previous = 4 * self.action.factors + 4
        # length, env, first_step: 4 each; agent, episode, group, group_episode, assignment: 8 each; three enums
        return observed + self.action.mask_size + previous + 3 * 4 + 5 * 8 + 3

    @property
    def one_step_chunk_bytes(self) -> int:
        """Upper bound of the encoded size of a chunk with one segment of one row, which must fit max_chunk_bytes."""
        columns = 2 * len(self.observations) + 24
        return self.step_bytes + self.segment_bytes + columns * _COLUMN_OVERHEAD_BYTES + _CHUNK_OVERHEAD_BYTES

    def to_message(self) -> spec_pb2.BehaviorSpec:
        """Encodes the spec as a message, after the checks of a receiver.

        Raises:
            BadSpec: The spec contradicts itself or spec.proto.
        """
        message = spec_pb2.BehaviorSpec(
            name=self.name,
            observations=[observation.to_message() for observation in self.observations],
            action=self.action.to_message(),
            grouped=self.grouped,
        )
        check_behavior(message)
        return message

    @classmethod
    def from_message(cls, message: spec_pb2.BehaviorSpec) -> "BehaviorSpec":
        """Decodes and checks a message.

        Raises:
            BadSpec: The first fault, with value and limit.
        """
        check_behavior(message)
        action: dict[str, Any] = {each.name: getattr(message.action, each.name) for each in fields(ActionSpec)}
        observations = tuple(_observation(observation) for observation in message.observations)
        return cls(message.name, observations, ActionSpec(**action), message.grouped)


def mismatches(ours: BehaviorSpec, theirs: BehaviorSpec) -> list[str]:
    """Returns the differences of two specs, one line each, with the words "run" (ours) and "actor" (theirs).

    Descriptions, dimension properties, places, first numbers and bounds of observations are not compared: they serve
    readers and the choice of an encoder at the first declaration. `grouped` is not compared because a simulator may form its groups later.
    """
    found: list[str] = []
    if ours.name != theirs.name:
        found.append(f"name: run {ours.name!r}, actor {theirs.name!r}")
    known = {observation.name: observation for observation in ours.observations}
    offered = {observation.name: observation for observation in theirs.observations}
    for name in known.keys() | offered.keys():
        found.extend(_observation_mismatches(name, known.get(name), offered.get(name)))
    found.sort()
    if not found and list(known) != list(offered):
        found.append(f"order of observations: run {', '.join(known)}, actor {', '.join(offered)}")
    pairs = (
        ("continuous_size", ours.action.continuous_size, theirs.action.continuous_size),
        ("discrete_branches", list(ours.action.discrete_branches), list(theirs.action.discrete_branches)),
        ("continuous_low", list(ours.action.continuous_low), list(theirs.action.continuous_low)),
        ("continuous_high", list(ours.action.continuous_high), list(theirs.action.continuous_high)),
    )
    found.extend(f"{what}: run {run}, actor {actor}" for what, run, actor in pairs if run != actor)
    return found


def _observation_mismatches(name: str, ours: ObservationSpec | None, theirs: ObservationSpec | None) -> list[str]:
    """Returns the differences of one observation."""
    if ours is None or theirs is None:
        return [f"obs/{name}: run {_type(ours)}, actor {_type(theirs)}"]
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return [f"obs/{name}: run {_type(ours)}, actor {_type(theirs)}"]
    pairs = (
        ("kind", ours.kind.name, theirs.kind.name),
        ("role", ours.role.name, theirs.role.name),
        ("layout", ours.layout.name, theirs.layout.name),
        ("categories", list(ours.categories), list(theirs.categories)),
        ("scale", ours.scale, theirs.scale),
    )
    return [f"obs/{name} {what}: run {run}, actor {actor}" for what, run, actor in pairs if run != actor]


def _type(observation: ObservationSpec | None) -> str:
    if observation is None:
        return "has none"
    return f"{observation.dtype.name}[{','.join(str(axis) for axis in observation.shape)}]"


def _observation(message: spec_pb2.ObservationSpec) -> ObservationSpec:
    """Converts an observation that passed the checks."""
    dtype = dtype_from_wire(message.dtype)
    if dtype is None:
        raise BadSpec(f"observation {message.name!r}: type {message.dtype} is unknown")
    return ObservationSpec(
        name=message.name,
        dtype=dtype,
        shape=tuple(message.shape),
        kind=ObservationKind(message.kind),
        role=ObservationRole(message.role or ObservationRole.DEFAULT),
        layout=ImageLayout(message.layout),
        categories=tuple(message.categories),
        scale=message.scale,
        dimension_properties=tuple(DimensionProperty(entry) for entry in message.dimension_properties),
        path=tuple(key.name if key.HasField("name") else key.index for key in message.path),
        first_categories=tuple(message.first_categories),
        bounds=(message.low, message.high) if message.HasField("low") else None,
    )


def _float32s(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(float(np.float32(value)) for value in values)
