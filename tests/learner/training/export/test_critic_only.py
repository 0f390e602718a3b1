"""Tests the files of policies that do not read what critics see."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from rollcast.descriptions import MODEL_PROPERTY, OBSERVATIONS_PROPERTY
from rollcast.policies import PolicyDescription
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from actor_client.policy.actions import PolicyUnusable
from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.shared.settings.network import NetworkSettings
from learner.training.export.check import open_session, random_inputs, random_state
from learner.training.export.describe import Progress, describe
from learner.training.export.onnx import PolicyExporter
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork

SECRET = ObservationSpec("secret", np.dtype("float32"), (3,))
NEAR = ObservationSpec("near", np.dtype("uint16"), (4,), scale=100.0)
LUCK = ObservationSpec("luck", np.dtype("float64"), (2,))
FAR = ObservationSpec("far", np.dtype("float32"), (5,))
SPEC = BehaviorSpec("Walker", (SECRET, NEAR, LUCK, FAR), ActionSpec(continuous_size=2, discrete_branches=(3,)))
MEMORY: dict[str, Any] = {"memory": {"memory_size": 8, "sequence_length": 4}}
UNREAD = ("secret", "luck")


def network_of(**changes: Any) -> PolicyNetwork:
    """Returns a network with random weights and statistics that reads the second and the last observation."""
    settings = {"hidden_units": 16, "normalize": True, "critic_only": UNREAD, **changes}
    network = PolicyNetwork(SPEC, NetworkSettings.model_validate(settings))
    buffers = {name for name, _ in network.named_buffers()}
    network.load_state_dict(random_state(network.state_dict(), buffers, np.random.default_rng(1)))
    return network


def version_of(network: PolicyNetwork) -> tuple[PolicyDescription, bytes]:
    """Returns a published version."""
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1, memory_stride=4))
    exporter.verify()
    return exporter.render_version(network.state_dict(), Progress(1, 0, 0))


@pytest.mark.parametrize("memory", [{}, MEMORY], ids=["plain", "memory"])
def test_a_published_file_takes_what_the_policy_reads(memory: dict[str, Any]) -> None:
    """Inputs keep the index in the spec; the header passes the receiver's checks; the file has the policy's statistics."""
    description, payload = version_of(network_of(**memory))
    assert PolicyDescription.from_message(description.to_message()) == description
    others = ("action_masks", "recurrent_in") if memory else ("action_masks",)
    assert description.inputs == ("obs_1", "obs_3", *others)
    graph = onnx.load_model_from_string(payload).graph
    assert [item.name for item in graph.input] == list(description.inputs)
    means = [list(each.dims) for each in graph.initializer if each.name.endswith("normalizer.mean")]
    assert means == [[4], [5]]


@pytest.mark.parametrize("memory", [{}, MEMORY], ids=["plain", "memory"])
def test_an_actor_feeds_only_those(memory: dict[str, Any]) -> None:
    """An actor passes all observations, and its actions have the learner's log-probabilities whatever the others are."""
    network = network_of(**memory)
    policy = Policy.load(*version_of(network), SPEC)
    feed = random_inputs(SPEC, 0, 6, np.random.default_rng(3))
    seen = [feed[f"obs_{index}"] for index in range(4)]
    with torch.no_grad():
        memories = torch.zeros(6, 8) if memory else None
        mean, _, logits, _ = network([torch.from_numpy(each) for each in seen], None, memories)
    assert mean is not None
    assert logits is not None
    for left_out in (seen[0], np.full_like(seen[0], 7.0), np.full_like(seen[0], np.nan)):
        noise = Noise(1, 0, agents=6, continuous_size=2, logits_size=3)
        actions = policy.greedy().act([left_out, *seen[1:]], None, noise)
        assert actions.continuous is not None
        assert actions.discrete is not None
        np.testing.assert_allclose(actions.continuous, mean.numpy(), rtol=1e-4, atol=1e-5)
        assert (actions.discrete[:, 0] == logits.argmax(1).numpy()).all()


def test_an_actor_refuses_what_its_spec_lacks() -> None:
    """An input beyond the observations of the spec, or one that the header does not list, is refused."""
    description, payload = version_of(network_of())
    short = BehaviorSpec("Walker", SPEC.observations[:3], SPEC.action)
    with pytest.raises(PolicyUnusable, match=r"'obs_3', 'action_masks'\] are announced; \['obs_1', 'action_masks'\]"):
        Policy.load(description, payload, short)
    plain = PolicyNetwork(SPEC, NetworkSettings(hidden_units=16))
    with pytest.raises(PolicyUnusable, match="its inputs are"):
        Policy.load(*_with_header(version_of(plain), description.inputs), SPEC)


def _with_header(version: tuple[PolicyDescription, bytes], inputs: tuple[str, ...]) -> tuple[PolicyDescription, bytes]:
    message = version[0].to_message()
    del message.inputs[:]
    message.inputs.extend(inputs)
    return PolicyDescription.from_message(message), version[1]


def test_unity_counts_the_sensors_that_are_left() -> None:
    """Inputs of the model for Unity are numbered without gaps, as in a build without the sensors of critics."""
    network = network_of(**MEMORY)
    payload = render_unity(network)
    model = onnx.load_model_from_string(payload)
    assert [item.name for item in model.graph.input] == ["obs_0", "obs_1", "action_masks", "recurrent_in"]
    told = {each.key: json.loads(each.value) for each in model.metadata_props}
    assert told[OBSERVATIONS_PROPERTY] == ["near", "far"]
    assert [(each["input"], each["name"]) for each in told[MODEL_PROPERTY]["observations"]] == [
        ("obs_0", "near"),
        ("obs_1", "far"),
    ]
    feed = random_inputs(SPEC, 8, 6, np.random.default_rng(3))
    given = {
        "obs_0": feed["obs_1"].astype(np.float32),
        "obs_1": feed["obs_3"],
        "action_masks": feed["action_masks"],
        "recurrent_in": feed["recurrent_in"][:, None],
    }
    (choice,) = open_session(payload).run(["deterministic_discrete_actions"], given)
    with torch.no_grad():
        seen = [torch.from_numpy(feed[f"obs_{index}"]) for index in range(4)]
        logits = network(seen, torch.from_numpy(feed["action_masks"]), torch.from_numpy(feed["recurrent_in"])).logits
    assert logits is not None
    assert (choice[:, 0] == logits.argmax(1).numpy()).all()


def test_a_model_of_a_policy_that_reads_all_names_none() -> None:
    """Without ``critic_only``, the model for Unity lists no names of its own."""
    plain = PolicyNetwork(SPEC, NetworkSettings(hidden_units=16))
    properties = onnx.load_model_from_string(render_unity(plain)).metadata_props
    assert [each.key for each in properties] == [MODEL_PROPERTY]
