"""Counts the memory of a reward signal's network, built on the meta device."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from learner.shared.settings.rewards import CuriositySettings, GAILSettings, LearnedSignalSettings, RNDSettings
from learner.training.buffers.columns import stored_dtype
from learner.training.networks.body import Body
from learner.training.networks.initializers import Initializer
from learner.training.networks.kept import Columns, KeptBytes, kept_bytes
from learner.training.rewards.curiosity import CuriosityNetwork
from learner.training.rewards.gail import Discriminator
from learner.training.rewards.learned import SignalSetup
from learner.training.rewards.rnd import RNDNetwork
from learner.training.rewards.transitions import Transitions


class SignalFootprint(NamedTuple):
    """A signal's network and a minibatch.

    Attributes:
        network: Network on the meta device.
        kept: Bytes of a minibatch.
    """

    network: nn.Module
    kept: KeptBytes


def signal_footprint(name: str, settings: LearnedSignalSettings, setup: SignalSetup) -> SignalFootprint:
    """Builds the network of a learned signal without reading its files, and counts what its loss keeps.

    Args:
        name: Name in the run file.
        settings: Settings of the signal.
        setup: Setup on the meta device.

    Raises:
        UserError: The network cannot be built for the behavior.
    """
    with torch.device("meta"):
        network = _network(name, settings, setup)
    return SignalFootprint(
        network, kept_bytes(network, lambda rows: _columns(setup, rows), lambda columns: _loss(network, columns, setup))
    )


def _network(name: str, settings: LearnedSignalSettings, setup: SignalSetup) -> nn.Module:
    match name, settings:
        case "curiosity", CuriositySettings():
            return CuriosityNetwork(settings, setup)
        case "rnd", RNDSettings():
            return RNDNetwork(settings, setup)
        case "gail", GAILSettings():
            return Discriminator(settings, setup)
        case _:  # a package's signal, for which a body with its settings stands
            network = settings.network_settings.without_memory()
            return Body(setup.spec.observations, network, Initializer(network.initialization))


def _columns(setup: SignalSetup, rows: int) -> dict[str, Tensor]:
    spec, found = setup.spec, {"reward": torch.zeros(rows), "terminated": torch.zeros(rows, dtype=torch.float64)}
    for index, seen in enumerate(spec.observations):
        for moment in ("before", "after"):
            found[f"{moment}/{index}"] = torch.zeros((rows, *seen.shape), dtype=stored_dtype(seen.dtype))
    if spec.action.continuous_size:
        found["continuous"] = torch.zeros(rows, spec.action.continuous_size)
    if spec.action.discrete_branches:
        found["discrete"] = torch.zeros((rows, len(spec.action.discrete_branches)), dtype=torch.int64)
    return found


def _loss(network: nn.Module, columns: Columns, setup: SignalSetup) -> Tensor:
    places = range(len(setup.spec.observations))
    before, after = ([columns[f"{moment}/{index}"] for index in places] for moment in ("before", "after"))
    steps = Transitions(
        columns["reward"],
        columns["terminated"],
        before,
        after,
        columns.get("continuous"),
        columns.get("discrete"),
    )
    if isinstance(network, Discriminator):
        return network.loss(steps, steps, None)[0]
    if isinstance(network, CuriosityNetwork | RNDNetwork):
        return network.loss(steps)[0]
    found: Tensor = network(after).square().mean()
    return found
