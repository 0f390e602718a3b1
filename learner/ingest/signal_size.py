"""How many parameters the networks of reward signals have: plain arithmetic, for them and for the check of a declaration."""

from __future__ import annotations

from typing import Final, NamedTuple

from rollcast.specs import BehaviorSpec

from learner.ingest.network_size import body_width
from learner.ingest.parameters import body_parameters, body_size, dense, encoder_parameters, linear
from learner.settings.network import NetworkSettings
from learner.settings.rewards import GAILSettings, LearnedSignalSettings

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
