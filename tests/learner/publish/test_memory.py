"""Recurrent policies as actors get them: the exported file goes on step by step as the network does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as untyped_runtime
import pytest
import torch
from rollcast.specs import ActionSpec, BehaviorSpec
from torch import Tensor

from learner.networks.lstm import Memory
from learner.networks.policy import PolicyNetwork
from learner.networks.squashed import SquashedPolicyNetwork
from learner.publish.check import PolicyCheckFailed
from learner.publish.describe import describe
from learner.publish.onnx import PolicyExporter
from learner.settings.network import MemorySettings, NetworkSettings
from tests.learner.networks.specs import entities, goal, image, vector

onnxruntime: Any = untyped_runtime  # it has no types
SIZE = 8
KINDS = (PolicyNetwork, SquashedPolicyNetwork)
SEEN = {"vector": (vector(),), "picture": (image(), vector()), "goal": (vector(), goal()), "crowd": (entities(),)}


def policy(
    *observations: Any, action: ActionSpec | None = None, kind: type[PolicyNetwork] = PolicyNetwork
) -> PolicyNetwork:
    """A policy with a memory."""
    spec = BehaviorSpec("Walker", observations, action or ActionSpec(2, (3,)))
    settings = NetworkSettings(hidden_units=8, normalize=True, memory=MemorySettings(memory_size=SIZE))
    return kind(spec, settings)


def exporter_of(network: PolicyNetwork) -> PolicyExporter:
    """An exporter of a network."""
    return PolicyExporter(network, describe(network, behavior_index=0, generation=1, memory_stride=4))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seen", SEEN)
def test_a_memory_behind_any_body_passes_its_check(seen: str, kind: type[PolicyNetwork]) -> None:
    """With every parameter and buffer changed at random, the file computes what torch does."""
    exporter_of(policy(*SEEN[seen], kind=kind)).verify()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "action", [ActionSpec(2), ActionSpec(0, (3, 2)), ActionSpec(1, (4,))], ids=["axes", "branches", "both"]
)
def test_step_by_step_it_remembers_as_the_network_does(action: ActionSpec, kind: type[PolicyNetwork]) -> None:
    """Over many steps, with episodes that end and other versions amid them, nothing drifts apart."""
    network = policy(vector(), action=action, kind=kind)
    exporter = exporter_of(network)
    generator = np.random.default_rng(3)
    memory, own = np.zeros((5, SIZE), np.float32), torch.zeros(5, SIZE)
    for step in range(60):
        if step % 20 == 0:  # another version
            with torch.no_grad():
                for parameter in network.parameters():
                    parameter.add_(torch.from_numpy(generator.normal(0, 0.1, parameter.shape).astype(np.float32)))
            session = onnxruntime.InferenceSession(exporter.render(network.state_dict()))
            names = [item.name for item in session.get_outputs()]
        rows = generator.normal(size=(5, 4)).astype(np.float32)
        feed: dict[str, Any] = {"obs_0": rows, "recurrent_in": memory}
        masks = None
        if action.discrete_branches:
            feed["action_masks"] = np.ones((5, sum(action.discrete_branches)), np.float32)
            masks = torch.from_numpy(feed["action_masks"])
        found = dict(zip(names, session.run(names, feed), strict=True))
        with torch.no_grad():
            output = network([torch.from_numpy(rows)], masks, own)
        for name in names:
            expected = getattr(output, name).detach().numpy()
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5)
        assert output.recurrent_out is not None
        memory, own = found["recurrent_out"], output.recurrent_out
        ended = generator.random(5) < 0.1
        memory[ended], own[torch.from_numpy(ended)] = 0.0, 0.0
    assert np.abs(memory).max() > 0.01


class Forgetful(Memory):
    """Leaves in the graph what was remembered when it was traced."""

    def forward(self, values: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Takes a constant for what it was given."""
        return super().forward(values, torch.zeros_like(memory) if torch.onnx.is_in_onnx_export() else memory)


def test_a_memory_that_the_file_forgets_is_found_at_start() -> None:
    """Nothing is published that acts by another memory than what is trained."""
    network = policy(vector())
    assert network.body.memory is not None
    network.body.memory.__class__ = Forgetful
    with pytest.raises(PolicyCheckFailed, match="differs from the network"):
        exporter_of(network).verify()
