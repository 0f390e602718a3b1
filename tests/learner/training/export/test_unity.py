"""Tests the model for Unity: ML-Agents' format and the network's outputs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from rollcast.descriptions import DISCRETE_LOG_PROBS, declared_output
from rollcast.enums import ObservationKind
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.settings.network import NetworkSettings
from learner.training.export.check import open_session, random_inputs, random_state
from learner.training.export.unity import ExportFailed, export_unity, render_unity
from learner.training.networks.policy import PolicyNetwork

FLOAT, INT64 = onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
VECTOR = ObservationSpec("vector", np.dtype("float32"), (5,))


def network_of(action: ActionSpec, *observations: ObservationSpec, **network_settings: Any) -> PolicyNetwork:
    """Makes a network with random weights and statistics."""
    spec = BehaviorSpec("Walker", observations or (VECTOR,), action)
    return shaken(PolicyNetwork(spec, NetworkSettings(hidden_units=16, **network_settings)))


def shaken(network: PolicyNetwork) -> PolicyNetwork:
    """Changes the weights of a network, as training does."""
    buffers = {name for name, _ in network.named_buffers()}
    network.load_state_dict(random_state(network.state_dict(), buffers, np.random.default_rng(1)))
    return network


def run(payload: bytes, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Runs a model; returns its outputs by name."""
    session = open_session(payload)
    names = [item.name for item in session.get_outputs()]
    return dict(zip(names, session.run(names, feed), strict=True))


def from_unity(network: PolicyNetwork, feed: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Converts inputs of wire types into Unity's: floats, and images from 0 to 1."""
    given = {}
    for name, value in feed.items():
        given[name] = value.astype(np.float32)
    for index, spec in enumerate(network.spec.observations):
        if spec.kind is ObservationKind.IMAGE and spec.dtype.kind in "iu" and spec.scale:
            given[f"obs_{index}"] /= np.float32(spec.scale)
    return given


@pytest.fixture(scope="module")
def rendered(kind: Any) -> tuple[PolicyNetwork, bytes]:
    """Returns a network of each kind and its model."""
    network = shaken(kind.build())
    return network, render_unity(network)


def test_the_numbers_are_those_of_the_network(rendered: tuple[PolicyNetwork, bytes]) -> None:
    """Deterministic actions equal the network's mean and mode, for all observations."""
    network, payload = rendered
    action = network.spec.action
    for batch_size in (1, 7):
        feed = random_inputs(network.spec, 0, batch_size, np.random.default_rng(batch_size))
        count = len(network.spec.observations)
        tensors = [torch.from_numpy(value) for value in feed.values()]
        with torch.no_grad():
            mean, _, logits, _ = network(tensors[:count], tensors[count] if action.discrete_branches else None)
        found = run(payload, from_unity(network, feed))
        assert found["version_number"].tolist() == [3.0]
        assert found["memory_size"].tolist() == [0.0]
        if mean is not None:
            expected = (mean.clamp(-3, 3) / 3).numpy()
            np.testing.assert_allclose(found["deterministic_continuous_actions"], expected, rtol=1e-3, atol=1e-4)
            assert found["continuous_action_output_shape"].tolist() == [action.continuous_size]
            assert np.abs(found["continuous_actions"]).max() <= 1.0
        if logits is not None:
            parts = torch.split(logits, list(action.discrete_branches), dim=1)
            modes = torch.stack([part.argmax(1) for part in parts], dim=1)
            assert found["deterministic_discrete_actions"].tolist() == modes.tolist()
            assert found["discrete_action_output_shape"].tolist() == [list(action.discrete_branches)]
            feed_of_unity = from_unity(network, feed)
            (log_probs,) = open_session(payload + declared_output(DISCRETE_LOG_PROBS)).run(
                [DISCRETE_LOG_PROBS], feed_of_unity
            )
            np.testing.assert_allclose(log_probs, logits.numpy(), rtol=1e-3, atol=1e-4)


def test_continuous_draws_have_the_policy_s_distribution() -> None:
    """Continuous draws have the policy's mean and deviation, and differ between rows and calls."""
    network = network_of(ActionSpec(2))
    network.get_parameter("gaussian.log_std").data = torch.tensor([-1.0, -2.0])
    session = open_session(render_unity(network))
    names = ["continuous_actions", "deterministic_continuous_actions"]
    feed = {"obs_0": np.ones((20_000, 5), np.float32)}
    actions, deterministic = session.run(names, feed)
    draws = np.asarray(actions, np.float64) * 3
    mean = deterministic[0] * 3
    np.testing.assert_allclose(draws.mean(0), mean, atol=0.02)
    np.testing.assert_allclose(draws.std(0), np.exp([-1.0, -2.0]), rtol=0.05)
    assert abs(np.mean((draws - mean).prod(1))) < 0.05 * np.exp(-3.0)
    assert not np.array_equal(session.run(names, feed)[0], actions)


def test_discrete_draws_have_the_policy_s_distribution() -> None:
    """Each branch is drawn by its probabilities, and a forbidden choice never."""
    network = network_of(ActionSpec(0, (3, 2, 4)))
    rows = np.ones((20_000, 5), np.float32)
    masks = np.tile(np.array([1, 0, 1, 1, 1, 0, 1, 1, 0], np.float32), (len(rows), 1))
    with torch.no_grad():
        logits = network([torch.from_numpy(rows[:1])], torch.from_numpy(masks[:1])).logits
    assert logits is not None
    drawn = run(render_unity(network), {"obs_0": rows, "action_masks": masks})["discrete_actions"]
    for branch, part in enumerate(torch.split(logits.exp()[0], [3, 2, 4])):
        share = np.bincount(drawn[:, branch], minlength=len(part)).astype(np.float64) / len(rows)
        np.testing.assert_allclose(share, part.numpy(), atol=0.02)
        assert (share[part.numpy() == 0] == 0).all()


def test_memory(recurrent: PolicyNetwork) -> None:
    """Memory has Unity's three axes, and two calls equal two steps of the network."""
    payload = render_unity(recurrent)
    model = onnx.load_model_from_string(payload)
    onnx.checker.check_model(model, full_check=True)
    rows, masks = np.ones((3, 5), np.float32), np.ones((3, 6), np.float32)
    memory, expected = np.zeros((3, 1, 8), np.float32), torch.zeros(3, 8)
    for _ in range(2):
        found = run(payload, {"obs_0": rows, "action_masks": masks, "recurrent_in": memory})
        memory = found["recurrent_out"]
        with torch.no_grad():
            result = recurrent([torch.from_numpy(rows)], torch.from_numpy(masks), expected).recurrent_out
        assert result is not None
        expected = result
    assert found["memory_size"].tolist() == [8.0]
    np.testing.assert_allclose(memory[:, 0], expected.numpy(), rtol=1e-4, atol=1e-5)


def test_the_file_is_written_whole(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The written file runs, and no other file or output is left."""
    path = tmp_path / "Walker.onnx"
    path.write_bytes(b"old")
    network = network_of(ActionSpec(2, (3,)), normalize=True).train()
    export_unity(network, path)
    assert network.training
    assert run(path.read_bytes(), {"obs_0": np.ones((1, 5), np.float32), "action_masks": np.ones((1, 3), np.float32)})
    assert [entry.name for entry in tmp_path.iterdir()] == ["Walker.onnx"]
    assert capfd.readouterr() == ("", "")


def test_a_folder_that_is_not_there_is_an_export_failure(tmp_path: Path) -> None:
    """A missing folder is an export error with file and reason."""
    path = tmp_path / "missing" / "Walker.onnx"
    with pytest.raises(ExportFailed, match="No such file or directory") as caught:
        export_unity(network_of(ActionSpec(2)), path)
    assert str(path) in str(caught.value)


class TooModern(PolicyNetwork):
    """A network with an operator that opset 9 lacks."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Uses einsum, which opset 12 introduced."""
        return super().forward([torch.einsum("bi,bj->bi", observations[0], observations[0])], action_masks)


def test_an_operator_unity_does_not_know_is_an_export_failure(tmp_path: Path) -> None:
    """An unsupported operator is an export error, and the old file stays."""
    path = tmp_path / "Walker.onnx"
    path.write_bytes(b"old")
    with pytest.raises(ExportFailed, match="einsum"):
        export_unity(TooModern(BehaviorSpec("Walker", (VECTOR,), ActionSpec(2)), NetworkSettings()), path)
    assert path.read_bytes() == b"old"
