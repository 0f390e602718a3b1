"""Checks a declared behavior: every rule of spec.proto for values, and bounds on sizes."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from rollcast import limits
from rollcast.enums import DimensionProperty, Dtype, ImageLayout, ObservationKind, ObservationRole, member
from rollcast.errors import BadSpec
from rollcast.tensors import dtype_from_wire
from rollcast.v1 import spec_pb2

# Number of axes of each kind; a vector may have any number, since encoders flatten it.
_AXES: Final[Mapping[ObservationKind, int]] = MappingProxyType(
    {ObservationKind.IMAGE: 3, ObservationKind.CATEGORICAL: 1, ObservationKind.ENTITIES: 2}
)


def check_behavior(message: spec_pb2.BehaviorSpec) -> None:
    """Raises `BadSpec` with the first fault."""
    fault = limits.behavior_name_fault(message.name)
    if fault is not None:
        raise BadSpec(f"behavior name {message.name[: limits.MAX_BEHAVIOR_NAME_LENGTH]!r} {fault}")
    count = len(message.observations)
    if not 1 <= count <= limits.MAX_OBSERVATIONS:
        raise BadSpec(f"{count} observations; 1 to {limits.MAX_OBSERVATIONS} are allowed")
    names = [observation.name for observation in message.observations]
    for observation in message.observations:
        _check_observation(observation)
    if len(set(names)) != len(names):
        repeated = next(name for name in names if names.count(name) > 1)
        raise BadSpec(f"two observations are named {repeated!r}; names must differ")
    _check_action(message.action)


def _check_observation(message: spec_pb2.ObservationSpec) -> None:
    if not limits.NAME_PATTERN.fullmatch(message.name):
        raise BadSpec(f"observation name {message.name[:80]!r} does not match {limits.NAME_PATTERN.pattern}")
    what = f"observation {message.name!r}"
    dtype = dtype_from_wire(message.dtype)
    # UINT64 is for counters: neither torch nor most ONNX operators take it.
    if dtype is None or message.dtype == Dtype.UINT64.value:
        raise BadSpec(f"{what}: type {message.dtype} is unknown or not allowed for observations")
    if len(message.shape) > limits.MAX_RANK - 1:
        raise BadSpec(f"{what}: {len(message.shape)} axes; at most {limits.MAX_RANK - 1} are allowed")
    if 0 in message.shape:
        raise BadSpec(f"{what}: shape {list(message.shape)} has an empty axis")
    size_bytes = math.prod(message.shape) * dtype.itemsize
    if size_bytes > limits.MAX_DECODED_CHUNK_BYTES:
        raise BadSpec(f"{what}: {size_bytes} bytes; at most {limits.MAX_DECODED_CHUNK_BYTES} are allowed")
    if not math.isfinite(message.scale) or message.scale < 0:
        raise BadSpec(f"{what}: scale {message.scale} must be finite and not negative")
    if member(ObservationRole, message.role) is None:
        raise BadSpec(f"{what}: role {message.role} is unknown")
    kind = member(ObservationKind, message.kind)
    if kind is None or kind is ObservationKind.UNSPECIFIED:
        raise BadSpec(f"{what}: kind {message.kind} is unknown")
    _check_form(message, kind, what)
    _check_categories(message, kind, dtype.kind, what)
    _check_place(message, kind, what)
    properties = message.dimension_properties
    if properties and len(properties) != len(message.shape):
        raise BadSpec(f"{what}: {len(properties)} dimension properties for {len(message.shape)} axes")
    if any(member(DimensionProperty, entry) is None for entry in properties):
        raise BadSpec(f"{what}: dimension properties {list(properties)} hold an unknown value")


def _check_form(message: spec_pb2.ObservationSpec, kind: ObservationKind, what: str) -> None:
    """Checks the number of axes and the layout, by kind."""
    axes = _AXES.get(kind)
    if axes is not None and len(message.shape) != axes:
        raise BadSpec(f"{what}: {kind.name} needs {axes} axes, shape is {list(message.shape)}")
    layout = member(ImageLayout, message.layout)
    if kind is ObservationKind.IMAGE:
        if layout not in (ImageLayout.HWC, ImageLayout.CHW):
            raise BadSpec(f"{what}: layout {message.layout} of an image must be HWC or CHW")
    elif layout is not ImageLayout.UNSPECIFIED:
        raise BadSpec(f"{what}: only images have a layout")


def _check_categories(message: spec_pb2.ObservationSpec, kind: ObservationKind, dtype_kind: str, what: str) -> None:
    categories = message.categories
    if kind is not ObservationKind.CATEGORICAL:
        if categories:
            raise BadSpec(f"{what}: only categorical observations have categories")
        return
    if dtype_kind not in "iu":
        raise BadSpec(f"{what}: categories need an integer type")
    if len(categories) != message.shape[0]:
        raise BadSpec(f"{what}: {len(categories)} numbers of categories for shape {list(message.shape)}")
    if 0 in categories or sum(categories) > limits.MAX_CATEGORIES:
        raise BadSpec(f"{what}: categories must be at least 1 each and at most {limits.MAX_CATEGORIES} together")


def _check_place(message: spec_pb2.ObservationSpec, kind: ObservationKind, what: str) -> None:
    """Checks what the declaration says about the environment, for readers of exported models."""
    if len(message.path) > limits.MAX_PATH:
        raise BadSpec(f"{what}: a path of {len(message.path)} keys; at most {limits.MAX_PATH} are allowed")
    for key in message.path:
        if key.WhichOneof("key") is None or len(key.name) > limits.MAX_DESCRIPTION_LENGTH:
            raise BadSpec(
                f"{what}: a key of its path is empty or has more than {limits.MAX_DESCRIPTION_LENGTH} characters"
            )
    if message.first_categories and (kind is not ObservationKind.CATEGORICAL):
        raise BadSpec(f"{what}: only categorical observations have a first category")
    if len(message.first_categories) not in (0, len(message.categories)):
        raise BadSpec(
            f"{what}: {len(message.first_categories)} first categories for {len(message.categories)} elements"
        )
    if message.HasField("low") != message.HasField("high"):
        raise BadSpec(f"{what}: it has only one of low and high; it needs both or neither")
    if not (math.isfinite(message.low) and math.isfinite(message.high) and message.low <= message.high):
        raise BadSpec(f"{what}: bounds [{message.low}, {message.high}] are not a finite interval")


def _check_action(message: spec_pb2.ActionSpec) -> None:
    size, branches = message.continuous_size, message.discrete_branches
    if not size and not branches:
        raise BadSpec("the behavior has neither continuous nor discrete actions")
    if size > limits.MAX_CONTINUOUS_ACTIONS:
        raise BadSpec(f"{size} continuous actions; at most {limits.MAX_CONTINUOUS_ACTIONS} are allowed")
    if len(branches) > limits.MAX_BRANCHES:
        raise BadSpec(f"{len(branches)} discrete branches; at most {limits.MAX_BRANCHES} are allowed")
    if 0 in branches or sum(branches) > limits.MAX_CATEGORIES:
        raise BadSpec(f"branches must have at least 1 choice each and at most {limits.MAX_CATEGORIES} together")
    low, high = message.continuous_low, message.continuous_high
    if len(low) not in (0, size) or len(low) != len(high):
        raise BadSpec(f"{len(low)} low and {len(high)} high bounds for {size} continuous actions")
    for axis, (bottom, top) in enumerate(zip(low, high, strict=True)):
        # The comparison is false for NaN too.
        if not bottom <= top or bottom == math.inf or top == -math.inf:
            raise BadSpec(f"continuous action {axis}: bounds [{bottom}, {top}] are not an interval")
    if len(message.descriptions) not in (0, size + len(branches)):
        raise BadSpec(f"{len(message.descriptions)} descriptions for {size + len(branches)} actions")
    if len(message.first_choices) not in (0, len(branches)):
        raise BadSpec(f"{len(message.first_choices)} first choices for {len(branches)} branches")
    if any(len(entry) > limits.MAX_DESCRIPTION_LENGTH for entry in message.descriptions):
        raise BadSpec(f"descriptions may have at most {limits.MAX_DESCRIPTION_LENGTH} characters")
