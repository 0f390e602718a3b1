"""How large the networks of entities, goals and memories become: plain arithmetic, for the networks and for the check of a declaration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rollcast.enums import ObservationKind, ObservationRole
from rollcast.specs import ObservationSpec

from learner.settings.network import NetworkSettings

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


def conditioning_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Counts the parameters of the layer of a body whose weights depend on the goal."""
    inputs = network.hidden_units if network.num_layers > 1 else body_width(specs, network)
    return conditioned_parameters(goal_width(specs, network), inputs, network.hidden_units)


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


def row_numbers(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Estimates how many numbers one row leaves for the way back: in attention, layers, generated weights and memory."""
    entities = sum(spec.shape[0] for spec in specs if is_entities(spec))
    attended = entities * (_EMBEDDINGS_KEPT * EMBEDDING + 2 * HEADS * entities)
    remembered = 0 if network.memory is None else _MEMORIES_KEPT * network.memory.memory_size
    layers = _SUMS_KEPT * network.num_layers * network.hidden_units
    return attended + layers + generated_weights(specs, network) + remembered
