"""Sizes of the networks that read observations, without torch: for the networks and for the check of a declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from rollcast.enums import ImageLayout, ObservationKind, ObservationRole
from rollcast.specs import ObservationSpec

from learner.settings.network import NetworkSettings, TowerSettings

EMBEDDING: Final = 128
"""Width of an embedded entity, and of what the attention makes of all of them."""

HEADS: Final = 4

_EMBEDDINGS_KEPT: Final = 12
"""Numbers of the width of an embedding that one entity leaves for the way back: queries, keys, values, norms, sums, ..."""

_SUMS_KEPT: Final = 2
"""Numbers of the width of a layer that one row leaves there: before the activation and behind it."""

_MEMORIES_KEPT: Final = 5
"""Numbers of the size of a memory that one row leaves there: four gates and their sums, hidden numbers and cells."""


def is_entities(spec: ObservationSpec) -> bool:
    """Says whether an observation is a list of entities ``[max, size]``."""
    return spec.kind is ObservationKind.ENTITIES and len(spec.shape) == 2


def is_picture(spec: ObservationSpec) -> bool:
    """Says whether an observation is read by a convolutional tower."""
    return spec.kind is ObservationKind.IMAGE and len(spec.shape) == 3


def goal_fault(spec: ObservationSpec) -> str | None:
    """Says why an observation cannot condition the body, and what to do; None if it can, or is no goal."""
    if spec.role is not ObservationRole.GOAL or not is_entities(spec):
        return None
    return (
        f"observation {spec.name!r} is a goal and a list of up to {spec.shape[0]} entities, and goal_conditioning_type "
        "hyper (the default) takes goals of fixed length only: send the goal as a vector, or set "
        "network_settings.goal_conditioning_type: none, and it is read like other lists of entities"
    )


def encoded_width(spec: ObservationSpec, network: NetworkSettings) -> int:
    """Returns how many numbers the body sees of an observation; none of entities, of which it sees a summary."""
    if is_entities(spec):
        return 0
    if is_picture(spec):
        return network.hidden_units
    return sum(spec.categories) if spec.kind is ObservationKind.CATEGORICAL else spec.size


def body_width(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Returns how many numbers the body sees of all observations."""
    attended = EMBEDDING if any(is_entities(spec) for spec in specs) else 0
    return sum(encoded_width(spec, network) for spec in specs) + attended


def goal_width(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Returns how many numbers a hyper-network sees; 0 if there is none."""
    if network.goal_conditioning_type != "hyper":
        return 0
    return sum(encoded_width(spec, network) for spec in specs if spec.role is ObservationRole.GOAL)


def generated_weights(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Returns how many weights a hyper-network generates for each row; 0 if there is none."""
    if not goal_width(specs, network):
        return 0
    return network.hidden_units * (network.hidden_units if network.num_layers > 1 else body_width(specs, network))


def attention_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Counts the parameters between lists of entities and the body."""
    sizes = [spec.shape[1] for spec in specs if is_entities(spec)]
    if not sizes:
        return 0
    fixed = sum(encoded_width(spec, network) for spec in specs)
    own = EMBEDDING if fixed else 0
    self_encoding = (fixed + 1) * EMBEDDING if fixed else 0
    return self_encoding + sum((size + own + 1) * EMBEDDING for size in sizes) + 4 * (EMBEDDING + 1) * EMBEDDING


def conditioned_parameters(goals: int, inputs: int, units: int) -> int:
    """Counts the parameters of a layer from ``inputs`` to ``units`` whose weights depend on the goal; 0 without one."""
    if not goals:
        return 0
    hidden = (goals + 1) * units + (units + 1) * units
    return hidden + (units + 1) * inputs * units + units


def memory_parameters(network: NetworkSettings, inputs: int) -> int:
    """Counts the parameters of a recurrent memory behind ``inputs`` numbers; 0 without."""
    if network.memory is None:
        return 0
    size = network.memory.memory_size // 2
    return 4 * size * (inputs + size + 1)


MIN_SIDE_PIXELS: Final[Mapping[str, int]] = MappingProxyType(
    {"simple": 20, "nature_cnn": 36, "resnet": 15, "match3": 5, "fully_connected": 1}
)
"""The smallest height and width each tower accepts."""

CONVOLUTIONS: Final[Mapping[str, tuple[tuple[int, int, int], ...]]] = MappingProxyType(
    {
        "simple": ((16, 8, 4), (32, 4, 2)),
        "nature_cnn": ((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        "match3": ((35, 3, 1), (144, 3, 1)),
        "fully_connected": (),
    }
)
"""Output channels, kernel and stride of each convolution of the plain towers."""

RESIDUAL_CHANNELS: Final = (16, 32, 32)
"""Of the stages of resnet; each ends in a pooling of `RESIDUAL_POOL` (kernel, stride)."""
RESIDUAL_POOL: Final = (3, 2)
RESIDUAL_CONVOLUTIONS: Final = 4
"""Of the two blocks of a stage, behind its first convolution."""


def picture_size(spec: ObservationSpec) -> tuple[int, int, int]:
    """Returns height, width and channels of a picture of either layout."""
    first, second, third = spec.shape
    return (second, third, first) if spec.layout == ImageLayout.CHW else (first, second, third)


def is_channels_first(spec: ObservationSpec) -> bool:
    """Says whether the planes of a picture are its first axis."""
    return spec.layout == ImageLayout.CHW


def picture_fault(spec: ObservationSpec, kind: str) -> str | None:
    """Says why a tower cannot take a picture, and what to do; None if it can."""
    height, width, _ = picture_size(spec)
    least = MIN_SIDE_PIXELS.get(kind, 1)  # an encoder of another package says for itself what it cannot take
    if min(height, width) >= least:
        return None
    return (
        f"observation {spec.name!r} is {height}x{width} pixels; vis_encode_type {kind} needs at least "
        f"{least} a side: choose a smaller one (fully_connected takes any size)"
    )


def encoded_size(spec: ObservationSpec, kind: str) -> int:
    """Returns how many numbers a tower makes of a picture that it can take, before its linear layer."""
    height, width, channels = picture_size(spec)
    if kind == "resnet":
        stages = tuple((outputs, *RESIDUAL_POOL) for outputs in RESIDUAL_CHANNELS)
    else:
        stages = CONVOLUTIONS.get(kind, ())
    for outputs, kernel, stride in stages:
        height, width = ((side - kernel) // stride + 1 for side in (height, width))
        channels = outputs
    return height * width * channels


def convolution_parameters(spec: ObservationSpec, kind: str) -> int:
    """Counts the parameters of a tower's convolutions."""
    _, _, channels = picture_size(spec)
    if kind == "resnet":
        found = 0
        for outputs in RESIDUAL_CHANNELS:
            found += (9 * channels + 1) * outputs + RESIDUAL_CONVOLUTIONS * (9 * outputs + 1) * outputs
            channels = outputs
        return found
    found = 0
    for outputs, kernel, _ in CONVOLUTIONS.get(kind, ()):
        found += (kernel * kernel * channels + 1) * outputs
        channels = outputs
    return found


class Board(NamedTuple):
    """What the first convolution of a tower sees.

    Attributes:
        planes: those of all boards, and one for each number beside them.
        height: of all boards.
        width: of all boards.
    """

    planes: int
    height: int
    width: int


def board_fault(specs: Sequence[ObservationSpec]) -> str | None:
    """Says why observations are no board, and what to do; None if they are one."""
    boards = [spec for spec in specs if is_picture(spec)]
    if not boards:
        return (
            "network_settings.tower is set, but no observation is planes of a board: send an array of three axes with its "
            "layout, in Gymnasium a Box with the attribute layout = 'CHW'; or take the tower out"
        )
    sizes = {picture_size(spec)[:2] for spec in boards}
    if len(sizes) > 1:
        shown = " and ".join(f"{height}x{width}" for height, width in sorted(sizes))
        return f"network_settings.tower is set, but boards are {shown}: all must have one size"
    lists = [spec.name for spec in specs if is_entities(spec)]
    if lists:
        return f"network_settings.tower is set, but observation {lists[0]!r} is a list of entities, which is no plane"
    return None


def board_of(specs: Sequence[ObservationSpec], network: NetworkSettings) -> Board:
    """Returns the size of the board that observations without a `board_fault` make."""
    boards = [picture_size(spec) for spec in specs if is_picture(spec)]
    numbers = sum(encoded_width(spec, network) for spec in specs if not is_picture(spec))
    height, width, _ = boards[0]
    return Board(sum(planes for _, _, planes in boards) + numbers, height, width)


def tower_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings, tower: TowerSettings) -> int:
    """Counts the parameters of the convolutions."""
    planes = board_of(specs, network).planes
    return 9 * tower.width * (planes + 2 * tower.depth * tower.width) + (2 * tower.depth + 1) * tower.width


def row_numbers(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Estimates how many numbers one row leaves for the way back: in attention, layers, generated weights and memory.

    A tower leaves two of each convolution.
    """
    tower = network.tower
    if tower is not None:
        board = board_of(specs, network)
        return 2 * (2 * tower.depth + 1) * tower.width * board.height * board.width
    entities = sum(spec.shape[0] for spec in specs if is_entities(spec))
    attended = entities * (_EMBEDDINGS_KEPT * EMBEDDING + 2 * HEADS * entities)
    remembered = 0 if network.memory is None else _MEMORIES_KEPT * network.memory.memory_size
    layers = _SUMS_KEPT * network.num_layers * network.hidden_units
    return attended + layers + generated_weights(specs, network) + remembered
