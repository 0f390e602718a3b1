"""Squashed policies, as actors and as Unity get them."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from rollcast.enums import Distribution, Squash
from rollcast.specs import ActionSpec, BehaviorSpec

from learner.networks.squashed import SquashedPolicyNetwork
from learner.publish.check import open_session, random_inputs, random_state
from learner.publish.describe import describe
from learner.publish.onnx import PolicyExporter
from learner.publish.unity import render_unity
from learner.settings.network import MemorySettings, NetworkSettings, TowerSettings
from tests.learner.publish.conftest import ENTITIES, GOAL, HWC, image, vector

KINDS: dict[str, tuple[tuple[Any, ...], ActionSpec]] = {
    "continuous": ((vector(),), ActionSpec(continuous_size=3)),
    "discrete": ((vector(),), ActionSpec(discrete_branches=(3, 2))),
    "hybrid": ((vector(),), ActionSpec(2, (2, 4))),
    "pictures, lists and goals": ((image("uint8", (20, 20, 3), HWC), ENTITIES, GOAL), ActionSpec(2, (3,))),
}


def network_of(kind: str, memory: MemorySettings | None = None) -> SquashedPolicyNetwork:
    """A network with other weights and statistics than it was made with."""
    observations, action = KINDS[kind]
    settings = NetworkSettings(hidden_units=16, normalize=True, memory=memory)
    network = SquashedPolicyNetwork(BehaviorSpec("Walker", observations, action), settings)
    buffers = {name for name, _ in network.named_buffers()}
    network.load_state_dict(random_state(network.state_dict(), buffers, np.random.default_rng(1)))
    return network


@pytest.mark.parametrize("kind", KINDS)
def test_actors_get_what_torch_computes(kind: str) -> None:
    """The header names tanh, and the graph equals the network after every parameter and buffer was changed."""
    network = network_of(kind)
    description = describe(network, behavior_index=0, generation=1)
    PolicyExporter(network, description).verify()
    if network.spec.action.continuous_size:
        assert description.continuous_distribution is Distribution.TANH_GAUSSIAN
        assert description.action_transform.squash is Squash.TANH


@pytest.mark.parametrize("kind", ["continuous", "hybrid"])
def test_unity_gets_squashed_actions(kind: str) -> None:
    """Deterministic actions are tanh of the mean, drawn ones within its range; only operators of opset 9."""
    network = network_of(kind)
    payload = render_unity(network)
    model = onnx.load_model_from_string(payload)
    assert (model.opset_import[0].version, model.ir_version) == (9, 4)
    session = open_session(payload)
    feed = random_inputs(network.spec, 0, 64, np.random.default_rng(2))
    given = {name: value.astype(np.float32) for name, value in feed.items()}
    names = [item.name for item in session.get_outputs()]
    found = dict(
        zip(names, session.run(names, {item.name: given[item.name] for item in session.get_inputs()}), strict=True)
    )
    masks = torch.from_numpy(feed["action_masks"]) if "action_masks" in feed else None
    with torch.no_grad():
        mean, log_std, *_ = network([torch.from_numpy(feed["obs_0"])], masks)
    assert mean is not None
    assert log_std is not None
    np.testing.assert_allclose(
        found["deterministic_continuous_actions"], torch.tanh(mean).numpy(), rtol=1e-4, atol=1e-5
    )
    assert np.abs(found["continuous_actions"]).max() <= 1.0
    assert not np.allclose(found["continuous_actions"], found["deterministic_continuous_actions"])


def test_unity_gets_memories_of_squashed_policies() -> None:
    """What goes in and comes out of the memory, and how large it is, stand in the model as in ppo's."""
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
    np.testing.assert_allclose(found["recurrent_out"][:, 0], remembered.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["deterministic_continuous_actions"], mean.tanh().numpy(), rtol=1e-4, atol=1e-5)


def test_towers_of_squashed_policies_are_in_the_file() -> None:
    """Planes of a board, moves and an axis beside them: as actors get them, and as Unity does."""
    settings = NetworkSettings(tower=TowerSettings(depth=1, width=4))
    spec = BehaviorSpec("Board", (image("uint8", (5, 4, 3), HWC),), ActionSpec(1, (20,)))
    network = SquashedPolicyNetwork(spec, settings)
    PolicyExporter(network, describe(network, behavior_index=0, generation=1)).verify()
    session = open_session(render_unity(network))
    assert "deterministic_discrete_actions" in [item.name for item in session.get_outputs()]
