"""What a declaration is checked by has the size of the networks that are built."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.specs import BehaviorSpec, ObservationSpec
from torch import nn

from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.networks.twin import TwinCritic
from learner.networks.value import build_critic
from learner.rewards.curiosity import CuriosityNetwork
from learner.rewards.gail import Discriminator
from learner.rewards.learned import SignalSetup
from learner.rewards.rnd import RNDNetwork
from learner.settings.network import NetworkSettings
from learner.settings.rewards import CuriositySettings, GAILSettings, RNDSettings
from learner.sizing.parameters import policy_parameters, signal_parameters, twin_parameters, value_parameters
from tests.learner.networks.specs import behavior, entities, goal, image, vector

BOARD = ObservationSpec("board", np.dtype(np.float32), (4, 3, 5), ObservationKind.IMAGE, layout=ImageLayout.CHW)
PIECE = ObservationSpec("piece", np.dtype(np.int32), (2,), ObservationKind.CATEGORICAL, categories=(3, 4))
SPECS: Mapping[str, BehaviorSpec] = {
    "axes": behavior(continuous=2),
    "both": behavior(vector(), PIECE, continuous=1, branches=(3, 2)),
    "pictures": behavior(image(shape=(40, 44, 3)), vector(), branches=(3,)),
    "lists": behavior(entities(), entities("others", (2, 7)), vector(), branches=(2,)),
    "lists alone": behavior(entities(), continuous=1),
    "goals": behavior(vector(), goal(), continuous=2, branches=(3,)),
    "goals and lists": behavior(entities(), goal(), continuous=2),
}
NETWORKS: Mapping[str, NetworkSettings] = {
    "plain": NetworkSettings(hidden_units=8, num_layers=2, normalize=True),
    "one layer": NetworkSettings(hidden_units=6, num_layers=1, vis_encode_type="nature_cnn"),
    "deep": NetworkSettings(hidden_units=5, num_layers=4, vis_encode_type="resnet", goal_conditioning_type="none"),
    "memory": NetworkSettings.model_validate(
        {"hidden_units": 7, "num_layers": 1, "memory": {"memory_size": 6}, "vis_encode_type": "match3"}
    ),
    "flat": NetworkSettings(hidden_units=4, num_layers=3, vis_encode_type="fully_connected"),
}
TOWER = NetworkSettings.model_validate(
    {
        "hidden_units": 9,
        "vis_encode_type": "fully_connected",
        "tower": {"depth": 2, "width": 6, "policy_planes": 3, "value_planes": 2},
    }
)
CASES = [
    *itertools.product(SPECS.values(), NETWORKS.values()),
    *(
        (behavior(BOARD, vector(), continuous=axes, branches=branches), TOWER)
        for axes, branches in ((2, (5,)), (0, (5,)), (1, ()))
    ),
]


def size(network: nn.Module) -> int:
    """Counts its parameters."""
    return sum(parameter.numel() for parameter in network.parameters())


@pytest.mark.parametrize(("spec", "network"), CASES)
def test_every_parameter_is_counted(spec: BehaviorSpec, network: NetworkSettings) -> None:
    """Policy, critics of both kinds, and twin critics: all of their layers, of every kind of behavior and network."""
    policy = PolicyNetwork(spec, network)
    assert policy_parameters(spec, network) == size(policy)
    assert policy_parameters(spec, network, squashed=True) == size(SquashedPolicyNetwork(spec, network))
    for shared in (True, False):
        critic = build_critic(policy, network, signals=3, shared=shared)
        assert value_parameters(spec, network, 3, shared=shared) == size(critic)
    assert twin_parameters(spec, network, 2) == size(TwinCritic(spec, network, 2))


@pytest.mark.parametrize(("spec", "network"), CASES)
def test_every_parameter_of_a_signal_is_counted(spec: BehaviorSpec, network: NetworkSettings) -> None:
    """What is learned, and what stays as it was drawn; a memory in the settings is left out."""
    setup = SignalSetup(spec, torch.Generator(), torch.device("cpu"))
    curiosity = CuriositySettings(network_settings=network)
    assert sum(signal_parameters("curiosity", curiosity, spec)) == size(CuriosityNetwork(curiosity, setup))
    rnd = RNDSettings(network_settings=network)
    made, counted = RNDNetwork(rnd, setup), signal_parameters("rnd", rnd, spec)
    assert counted == (size(made.predictor), size(made.target))
    for uses_actions, uses_vail in itertools.product((False, True), repeat=2):
        gail = GAILSettings(demo_path="", network_settings=network, use_actions=uses_actions, use_vail=uses_vail)
        assert sum(signal_parameters("gail", gail, spec)) == size(Discriminator(gail, setup))
