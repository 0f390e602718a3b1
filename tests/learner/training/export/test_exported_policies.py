"""Tests squashed and recurrent policies as exported for actors and Unity."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as untyped_runtime
import pytest
import torch
from rollcast.enums import Distribution, Squash
from rollcast.specs import ActionSpec, BehaviorSpec
from torch import Tensor

from learner.shared.settings.network import MemorySettings, NetworkSettings
from learner.training.export.check import PolicyCheckFailed, open_session, random_inputs, random_state
from learner.training.export.describe import describe
from learner.training.export.onnx import PolicyExporter
from learner.training.export.unity import render_unity
from learner.training.networks.lstm import Memory
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import SquashedPolicyNetwork
from tests.learner.training.export.conftest import ENTITIES, GOAL, HWC, image, vector
from tests.learner.training.networks import specs

KINDS: dict[str, tuple[tuple[Any, ...], ActionSpec]] = {
    "continuous": ((vector(),), ActionSpec(continuous_size=3)),
    "discrete": ((vector(),), ActionSpec(discrete_branches=(3, 2))),
    "hybrid": ((vector(),), ActionSpec(2, (2, 4))),
    "pictures, lists and goals": ((image("uint8", (20, 20, 3), HWC), ENTITIES, GOAL), ActionSpec(2, (3,))),
}


def network_of(kind: str, memory: MemorySettings | None = None) -> SquashedPolicyNetwork:
    """Returns a network with changed weights and statistics."""
    observations, action = KINDS[kind]
    settings = NetworkSettings(hidden_units=16, normalize=True, memory=memory)
    network = SquashedPolicyNetwork(BehaviorSpec("Walker", observations, action), settings)
    buffers = {name for name, _ in network.named_buffers()}
    network.load_state_dict(random_state(network.state_dict(), buffers, np.random.default_rng(1)))
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_actors_get_what_torch_computes(kind: str) -> None:
    """The header names tanh, and the graph equals the network after every parameter is changed."""
    network = network_of(kind)
    description = describe(network, behavior_index=0, generation=1)
    PolicyExporter(network, description).verify()
    if network.spec.action.continuous_size:
        assert description.continuous_distribution is Distribution.TANH_GAUSSIAN
        assert description.action_transform.squash is Squash.TANH


def test_unity_gets_memories_of_squashed_policies() -> None:
    """The model has memory input, output and size as for ppo."""
    network = network_of("hybrid", MemorySettings(memory_size=8))
    session = open_session(render_unity(network))
    shapes = {item.name: item.shape for item in session.get_inputs()}
    assert shapes["recurrent_in"] == ["batch", 1, 8]
    names = [item.name for item in session.get_outputs()]
    assert names[-1] == "recurrent_out"
    feed = random_inputs(network.spec, 8, 64, np.random.default_rng(2))
    given = {name: value.astype(np.float32) for name, value in feed.items()}
    given["recurrent_in"] = given["recurrent_in"].reshape(64, 1, 8)
    found = dict(zip(names, session.run(names, {name: given[name] for name in shapes}), strict=True))
    observed, masks, memory = (torch.from_numpy(feed[name]) for name in ("obs_0", "action_masks", "recurrent_in"))
    with torch.no_grad():
        mean, _, _, remembered = network([observed], masks, memory)
    assert mean is not None
    assert remembered is not None
    assert found["memory_size"] == [8.0]
    assert np.abs(found["continuous_actions"]).max() <= 1.0
    assert not np.allclose(found["continuous_actions"], found["deterministic_continuous_actions"])
    np.testing.assert_allclose(found["recurrent_out"][:, 0], remembered.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["deterministic_continuous_actions"], mean.tanh().numpy(), rtol=1e-4, atol=1e-5)


onnxruntime: Any = untyped_runtime  # it has no types
SIZE = 8
NETWORKS = (PolicyNetwork, SquashedPolicyNetwork)
SEEN = {
    "vector": (specs.vector(),),
    "picture": (specs.image(), specs.vector()),
    "goal": (specs.vector(), specs.goal()),
    "crowd": (specs.entities(),),
}


def policy(
    *observations: Any, action: ActionSpec | None = None, kind: type[PolicyNetwork] = PolicyNetwork
) -> PolicyNetwork:
    """Returns a policy with a memory."""
    spec = BehaviorSpec("Walker", observations, action or ActionSpec(2, (3,)))
    settings = NetworkSettings(hidden_units=8, normalize=True, memory=MemorySettings(memory_size=SIZE))
    return kind(spec, settings)


def exporter_of(network: PolicyNetwork) -> PolicyExporter:
    """Returns an exporter of a network."""
    return PolicyExporter(network, describe(network, behavior_index=0, generation=1, memory_stride=4))


@pytest.mark.parametrize("kind", NETWORKS)
@pytest.mark.parametrize("seen", SEEN)
def test_a_memory_behind_any_body_passes_its_check(seen: str, kind: type[PolicyNetwork]) -> None:
    """With random parameters and buffers, the file equals torch for a memory behind any body."""
    exporter_of(policy(*SEEN[seen], kind=kind)).verify()


class Forgetful(Memory):
    """A network whose memory becomes a constant in the graph."""

    def forward(self, values: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Takes a constant for what it was given."""
        return super().forward(values, torch.zeros_like(memory) if torch.onnx.is_in_onnx_export() else memory)


def test_a_memory_that_the_file_forgets_is_found_at_start() -> None:
    """A file that ignores the memory is found at the start."""
    network = policy(specs.vector())
    assert network.body.memory is not None
    network.body.memory.__class__ = Forgetful
    with pytest.raises(PolicyCheckFailed, match="differs from the network"):
        exporter_of(network).verify()
