"""Tests exported models as policies of opponents."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from rollcast.descriptions import PolicyDescription
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import ActionSpec, BehaviorSpec

from actor_client.policy.noise import Noise
from actor_client.policy.runner import Policy
from learner.training.export.check import random_inputs
from learner.training.export.describe import describe
from learner.training.export.frozen import FrozenPolicy, UnusableModel, check_model, load_frozen
from learner.training.export.onnx import PolicyExporter
from learner.training.export.unity import render_unity
from learner.training.networks.policy import PolicyNetwork
from tests.learner.training.export.conftest import HYBRID, KINDS, vector
from tests.learner.training.export.test_unity import network_of, shaken

ROWS = 6000


def frozen(network: PolicyNetwork, folder: Path, spec: BehaviorSpec | None = None) -> FrozenPolicy:
    """Exports a network and loads the file for its own behavior, or for another one."""
    path = folder / "model.onnx"
    path.write_bytes(render_unity(network))
    check_model(path)
    return load_frozen(path, spec or network.spec, 3)


def loaded(found: FrozenPolicy, spec: BehaviorSpec) -> Policy:
    """Loads a policy as an actor does, after its header has travelled."""
    header = PolicyDescription.from_message(found.stored.description.to_message())
    return Policy.load(header, found.stored.payload, spec)


@pytest.mark.parametrize("name", ["multidiscrete", "hybrid", "simple HWC", "dictionary", "categories in int32"])
def test_actors_draw_the_actions_of_the_model(name: str, tmp_path: Path) -> None:
    """Over many draws, choices have the network's probabilities, and axes its mean and deviation within the bounds."""
    network = shaken(KINDS[name].build())
    spec = network.spec
    policy = loaded(frozen(network, tmp_path), spec)
    feed = random_inputs(spec, 0, 1, np.random.default_rng(2))
    tensors = [torch.from_numpy(value) for value in feed.values()]
    count = len(spec.observations)
    with torch.no_grad():
        mean, log_std, logits, _ = network(tensors[:count], tensors[count] if spec.action.discrete_branches else None)
    values = list(feed.values())
    rows = ROWS if spec.observations[0].size_bytes < 200 else 300
    seen = [np.repeat(value, rows, axis=0) for value in values[:count]]
    masks = np.repeat(feed["action_masks"], rows, axis=0).astype(np.uint8) if logits is not None else None
    noise = Noise(1, 0, agents=rows, continuous_size=spec.action.continuous_size, logits_size=spec.action.mask_size)
    actions = policy.act(seen, masks, noise)
    tolerance = 5 / np.sqrt(rows)
    if logits is not None:
        assert actions.discrete is not None
        for branch, part in enumerate(torch.split(logits, list(spec.action.discrete_branches), dim=1)):
            shares = np.bincount(actions.discrete[:, branch], minlength=part.shape[1]) / rows
            np.testing.assert_allclose(shares, part.softmax(1)[0].numpy(), atol=tolerance)
    if mean is not None:
        assert actions.environment_continuous is not None
        draws = mean + torch.exp(log_std) * torch.randn(
            20000, mean.shape[1], generator=torch.Generator().manual_seed(0)
        )
        wanted = (draws.clamp(-3, 3) / 3).detach().numpy()
        found = actions.environment_continuous
        np.testing.assert_allclose(found.mean(0), wanted.mean(0), atol=tolerance)
        np.testing.assert_allclose(found.std(0), wanted.std(0), atol=tolerance)
        assert np.abs(found).max() <= 1.0


def test_the_most_likely_actions(tmp_path: Path) -> None:
    """A deterministic opponent takes the mode of the network, always the same; a model without it is refused."""
    network = shaken(KINDS["hybrid"].build())
    spec, path = network.spec, tmp_path / "model.onnx"
    path.write_bytes(render_unity(network))
    policy = loaded(load_frozen(path, spec, 3, is_deterministic=True), spec)
    feed = random_inputs(spec, 0, 20, np.random.default_rng(2))
    seen, masks = list(feed.values())[: len(spec.observations)], feed["action_masks"].astype(np.uint8)
    noise = Noise(1, 0, agents=20, continuous_size=spec.action.continuous_size, logits_size=spec.action.mask_size)
    with torch.no_grad():
        mean, _, logits, _ = network(
            [torch.from_numpy(value) for value in seen], torch.from_numpy(feed["action_masks"])
        )
    assert mean is not None
    assert logits is not None
    wanted = [part.argmax(1).numpy() for part in torch.split(logits, list(spec.action.discrete_branches), dim=1)]
    actions = policy.act(seen, masks, noise)
    assert actions.discrete is not None
    assert actions.environment_continuous is not None
    np.testing.assert_array_equal(actions.discrete, np.stack(wanted, 1))
    np.testing.assert_allclose(actions.environment_continuous, (mean.clamp(-3, 3) / 3).numpy(), atol=1e-3)
    model = onnx.load(path)
    kept = [each for each in model.graph.output if not each.name.startswith("deterministic_")]
    del model.graph.output[:]
    model.graph.output.extend(kept)
    path.write_bytes(model.SerializeToString())
    load_frozen(path, spec, 3)
    with pytest.raises(UnusableModel, match="has no output deterministic_continuous_actions, deterministic_discrete"):
        load_frozen(path, spec, 3, is_deterministic=True)


def test_memory_is_that_of_the_network(recurrent: PolicyNetwork, tmp_path: Path) -> None:
    """A policy with memory gets and returns the memory of each agent."""
    network = shaken(recurrent)
    spec = network.spec
    policy = loaded(frozen(network, tmp_path), spec)
    feed = random_inputs(spec, network.memory_size, 3, np.random.default_rng(2))
    with torch.no_grad():
        expected = network([torch.from_numpy(feed["obs_0"])], None, torch.from_numpy(feed["recurrent_in"]))[3]
    noise = Noise(1, 0, agents=3, continuous_size=2, logits_size=6)
    actions = policy.act([feed["obs_0"]], None, noise, feed["recurrent_in"])
    assert actions.memory_out is not None
    np.testing.assert_allclose(actions.memory_out, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_policy_that_does_not_read_everything(tmp_path: Path) -> None:
    """A model of a run with ``critic_only`` gets the observations that it reads, by their names."""
    network = network_of(HYBRID, vector(name="secret", shape=(2,)), vector(name="seen"), critic_only=["secret"])
    found = frozen(network, tmp_path)
    assert found.stored.description.inputs == ("obs_1", "action_masks")
    loaded(found, network.spec)


def test_one_file_is_one_policy(tmp_path: Path) -> None:
    """The same file gives the same bytes, of generation and version 0."""
    network = network_of(HYBRID)
    first, second = frozen(network, tmp_path), frozen(network, tmp_path)
    assert first == second
    assert (first.stored.key.generation, first.stored.key.version) == (0, 0)


def other(**changes: object) -> BehaviorSpec:
    """Returns a spec that differs from that of the model."""
    return dataclasses.replace(network_of(HYBRID).spec, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (other(observations=(vector(shape=(6,)),)), "the shape \\[5\\], but the behavior's has \\[6\\]"),
        (
            other(observations=(vector(), vector(name="more"))),
            "takes 1 observations, but the behavior has vector, more",
        ),
        (other(action=ActionSpec(2)), "outputs are continuous_actions, discrete_actions"),
        (other(action=ActionSpec(3, (2, 4))), "the shape \\(2, 2\\) instead of \\(2, 3\\)"),
        (other(action=ActionSpec(2, (4, 2))), "branches have \\[2, 4\\] choices"),
        (other(action=ActionSpec(2, (2, 5))), "masks of the shape"),
        (other(action=ActionSpec(2, (2, 4), (-1.0, -np.inf), (1.0, np.inf))), "axes without bounds"),
    ],
)
def test_a_model_of_another_behavior_is_refused(spec: BehaviorSpec, reason: str, tmp_path: Path) -> None:
    """A model whose observations or actions differ is refused with the difference."""
    with pytest.raises(UnusableModel, match=reason):
        frozen(network_of(HYBRID), tmp_path, spec)


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is missing, too large, no model, a model with external data, or a run's snapshot is refused."""
    network = network_of(HYBRID)
    path = tmp_path / "file.onnx"
    exporter = PolicyExporter(network, describe(network, behavior_index=0, generation=1))
    outside = onnx.load_model_from_string(render_unity(network))
    tensor = outside.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="/etc/passwd")
    damaged = onnx.load_model_from_string(render_unity(network))
    weights = next(each for each in damaged.graph.initializer if len(each.dims) == 2)
    weights.raw_data = np.full(tuple(weights.dims), np.nan, np.float32).tobytes()
    for content, reason in (
        (None, "does not exist"),
        (b"", "is empty"),
        (damaged.SerializeToString(), r"the weights .* are not numbers \(NaN\)"),
        (b"\x80\x05cos\nsystem\n", "cannot be used: wire type"),
        (render_unity(network)[:-40], "cannot be used: the model is cut off"),
        (outside.SerializeToString(), "data is in a separate file"),
        (exporter.render(network.state_dict()), "name a model that a run exported"),
    ):
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(UnusableModel, match=reason):
            check_model(path)
    with path.open("r+b") as file:
        file.truncate(MAX_POLICY_BYTES + 1)
    with pytest.raises(UnusableModel, match=r"1073741825 bytes; the limit is"):
        check_model(path)
    with pytest.raises(UnusableModel, match="cannot be read"):
        check_model(tmp_path)


def test_a_model_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    """A model that is well-formed but cannot be run, or contradicts itself, is refused with one line."""
    path = tmp_path / "model.onnx"
    spec = network_of(HYBRID).spec
    for damage in ("operator", "twice", "infinite"):
        model = onnx.load_model_from_string(render_unity(network_of(HYBRID)))
        if damage == "operator":
            model.graph.node[0].op_type = "Nonsense"
        elif damage == "twice":
            model.graph.node.append(model.graph.node[-1])
        else:
            for each in model.graph.initializer:
                if each.data_type == onnx.TensorProto.FLOAT and len(each.dims) == 1 and each.dims[0] == 16:
                    each.raw_data = np.full(16, np.nan, np.float32).tobytes()
        path.write_bytes(model.SerializeToString())
        with pytest.raises(UnusableModel) as caught:
            load_frozen(path, spec, 0)
        assert "\n" not in str(caught.value)
