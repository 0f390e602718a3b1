"""Counts of network parameters, without torch, for the check of a declaration.

Tests compare each count with the network itself. An encoder of another package counts as one linear layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from rollcast.specs import BehaviorSpec, ObservationSpec

from learner.settings.network import NetworkSettings
from learner.settings.rewards import GAILSettings, LearnedSignalSettings
from learner.sizing.networks import (
    attention_parameters,
    board_of,
    body_width,
    conditioned_parameters,
    convolution_parameters,
    encoded_size,
    goal_width,
    is_picture,
    memory_parameters,
    tower_parameters,
)

TWINS: Final = 2


def linear(inputs: int, outputs: int) -> int:
    """Counts the parameters of a linear layer, or of a 1x1 convolution."""
    return (inputs + 1) * outputs


def dense(inputs: int, units: int, count: int) -> int:
    """Counts the parameters of layers of one width, one behind the other."""
    return linear(inputs, units) + (count - 1) * linear(units, units) if count > 0 else 0


def encoder_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Counts those of `learner.networks.encoders.ObservationEncoder`."""
    kind = network.vis_encode_type
    pictures = sum(
        convolution_parameters(spec, kind) + linear(encoded_size(spec, kind), network.hidden_units)
        for spec in specs
        if is_picture(spec)
    )
    return pictures + attention_parameters(specs, network)


def body_parameters(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Counts those of `learner.networks.body.Body`."""
    if network.tower is not None:
        return tower_parameters(specs, network, network.tower)
    goals, units, inputs = goal_width(specs, network), network.hidden_units, body_width(specs, network)
    plain = network.num_layers - bool(goals)
    return (
        encoder_parameters(specs, network)
        + dense(inputs, units, plain)
        + conditioned_parameters(goals, units if plain else inputs, units)
        + memory_parameters(network, units)
    )


def body_size(specs: Sequence[ObservationSpec], network: NetworkSettings) -> int:
    """Returns how many numbers a body makes."""
    if network.tower is not None:
        board = board_of(specs, network)
        return network.tower.width * board.height * board.width
    return network.hidden_units if network.memory is None else network.memory.memory_size // 2


def policy_parameters(spec: BehaviorSpec, network: NetworkSettings, *, squashed: bool = False) -> int:
    """Counts those of `learner.networks.policy.PolicyNetwork`.

    Args:
        spec: what the behavior sees and does.
        network: of the run file.
        squashed: whether deviations depend on what is observed.
    """
    axes, choices = spec.action.continuous_size, spec.action.mask_size
    size = body_size(spec.observations, network)
    gaussian = (2 * linear(size, axes) if squashed else linear(size, axes) + axes) if axes else 0
    planes = 0 if network.tower is None else network.tower.policy_planes
    categorical = _head(spec.observations, network, planes, choices) if choices else 0
    return body_parameters(spec.observations, network) + gaussian + categorical


def value_parameters(spec: BehaviorSpec, network: NetworkSettings, signals: int, *, shared: bool = False) -> int:
    """Counts those of `learner.networks.value.ValueNetwork`, or of a head on the policy's body.

    Args:
        spec: what the behavior sees.
        network: of the run file.
        signals: number of reward signals.
        shared: whether it is a head.
    """
    planes = 0 if network.tower is None else network.tower.value_planes
    head = _head(spec.observations, network, planes, signals)
    return head if shared else body_parameters(spec.observations, network) + head


def _head(specs: Sequence[ObservationSpec], network: NetworkSettings, planes: int, outputs: int) -> int:
    """Counts those of a linear layer; behind a tower it sees so many planes, through a convolution."""
    if network.tower is None:
        return linear(body_size(specs, network), outputs)
    board = board_of(specs, network)
    return linear(network.tower.width, planes) + linear(planes * board.height * board.width, outputs)


def twin_parameters(spec: BehaviorSpec, network: NetworkSettings, signals: int) -> int:
    """Counts those of `learner.networks.twin.TwinCritic`; its target has as many.

    Args:
        spec: what the behavior sees and does.
        network: of the run file.
        signals: number of reward signals.
    """
    specs, axes, units = spec.observations, spec.action.continuous_size, network.hidden_units
    goals, layers = goal_width(specs, network), network.num_layers
    if network.tower is not None:
        board, planes, goals = board_of(specs, network), network.tower.policy_planes, 0
        common = tower_parameters(specs, network, network.tower) + linear(network.tower.width, TWINS * planes)
        size, layers = planes * board.height * board.width, layers if axes else 0
    else:
        size = body_width(specs, network)
        common = encoder_parameters(specs, network) + memory_parameters(network, size)
        size = size if network.memory is None else network.memory.memory_size // 2
    plain = layers - bool(goals)
    inputs = units if plain else size + axes
    outputs = signals * (spec.action.mask_size or 1)
    each = dense(size + axes, units, plain) + conditioned_parameters(goals, inputs, units)
    return common + TWINS * (each + linear(units if goals else inputs, outputs))


MODEL_UNITS: Final = 256
"""Width of the one hidden layer of each of curiosity's models."""

BOTTLENECK: Final = 128
"""Numbers through which gail's score sees, with ``use_vail``."""


class SignalParameters(NamedTuple):
    """Parameters of a reward signal.

    Attributes:
        learned: with gradient and moments.
        fixed: that stay as they were drawn.
    """

    learned: int
    fixed: int = 0


def without_memory(settings: NetworkSettings) -> NetworkSettings:
    """Returns the settings of a signal's network, which sees single transitions and has no memory, as in ML-Agents."""
    return settings.model_copy(update={"memory": None})


def signal_network(name: str, settings: LearnedSignalSettings) -> NetworkSettings:
    """Returns the settings of a signal's network as it reads them: gail has layers, and no tower.

    Args:
        name: in the run file.
        settings: of the signal.
    """
    network = without_memory(settings.network_settings)
    return network.model_copy(update={"tower": None}) if name == "gail" else network


def signal_parameters(name: str, settings: LearnedSignalSettings, spec: BehaviorSpec) -> SignalParameters:
    """Counts those of a signal; one of a package is taken for a body that learns.

    Args:
        name: in the run file.
        settings: of the signal.
        spec: what the behavior sees and does.
    """
    network = signal_network(name, settings)
    if name == "gail" and isinstance(settings, GAILSettings):
        return SignalParameters(_discriminator(settings, network, spec))
    body = body_parameters(spec.observations, network)
    if name == "rnd":
        return SignalParameters(body, body)
    if name != "curiosity":
        return SignalParameters(body)
    size, actions = body_size(spec.observations, network), _action_numbers(spec)
    inverse = linear(2 * size, MODEL_UNITS) + linear(MODEL_UNITS, actions)
    forecast = linear(size + actions, MODEL_UNITS) + linear(MODEL_UNITS, size)
    return SignalParameters(body + inverse + forecast)


def _action_numbers(spec: BehaviorSpec) -> int:
    return spec.action.continuous_size + sum(spec.action.discrete_branches)


def _discriminator(settings: GAILSettings, network: NetworkSettings, spec: BehaviorSpec) -> int:
    units, inputs = network.hidden_units, body_width(spec.observations, network)
    inputs += _action_numbers(spec) + 1 if settings.use_actions else 0
    layers = encoder_parameters(spec.observations, network) + dense(inputs, units, network.num_layers)
    if not settings.use_vail:
        return layers + linear(units, 1)
    return layers + linear(units, BOTTLENECK) + BOTTLENECK + linear(BOTTLENECK, 1)
