"""Tests policy files, which are exported once and spliced for each version."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper
from rollcast.enums import Distribution, Squash
from rollcast.policies import PolicyDescription
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec

from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.network import NetworkSettings
from learner.training.export.check import PolicyCheckFailed, open_session, random_inputs
from learner.training.export.describe import Progress, describe
from learner.training.export.graph import call
from learner.training.export.onnx import PolicyExporter, Slot, Splicer, find_slots
from learner.training.networks.policy import PolicyNetwork


def exporter_of(network: PolicyNetwork) -> PolicyExporter:
    """Exports a network."""
    return PolicyExporter(network, describe(network, behavior_index=2, generation=3, memory_stride=4))


def vector_network(action: ActionSpec, **network_settings: Any) -> PolicyNetwork:
    """Makes a network of five numbers."""
    spec = BehaviorSpec("Walker", (ObservationSpec("vector", np.dtype("float32"), (5,)),), action)
    return PolicyNetwork(spec, NetworkSettings(hidden_units=16, **network_settings))


def shake(network: PolicyNetwork) -> None:
    """Changes all parameters and statistics, as training does."""
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1.1).add_(0.02 * torch.randn_like(parameter))
        for name, buffer in network.named_buffers():
            if name.endswith(("mean", "std")):
                buffer.mul_(1.7).add_(0.3)


@pytest.fixture(scope="module")
def exported(kind: Any) -> tuple[PolicyNetwork, PolicyExporter]:
    """Returns a trained network of each kind and its exporter."""
    network = kind.build()
    exporter = exporter_of(network)
    shake(network)
    return network, exporter


def test_every_kind_passes_its_check(exported: tuple[PolicyNetwork, PolicyExporter]) -> None:
    """Casting, scaling, one-hot, axis order, normalizer, towers, heads and masks pass the check."""
    exported[1].verify()


def test_a_spliced_version_is_the_trained_network(exported: tuple[PolicyNetwork, PolicyExporter]) -> None:
    """The spliced file equals the trained network, at new batch sizes."""
    network, exporter = exported
    payload = exporter.render(network.state_dict())
    onnx.checker.check_model(onnx.load_model_from_string(payload), full_check=True)
    session = open_session(payload)
    names = list(exporter.description.outputs)
    for batch_size in (1, 2, 64):
        feed = random_inputs(network.spec, 0, batch_size, np.random.default_rng(batch_size))
        with torch.no_grad():
            expected = call(network, [torch.from_numpy(value) for value in feed.values()])
        for name, ours, theirs in zip(names, expected, session.run(names, feed), strict=True):
            np.testing.assert_allclose(theirs, ours.detach().numpy(), rtol=1e-4, atol=1e-5, err_msg=name)


def test_inputs_and_outputs_are_those_of_the_header(exported: tuple[PolicyNetwork, PolicyExporter]) -> None:
    """Inputs and outputs have the header's names, order, types and shapes with a free batch axis."""
    network, exporter = exported
    description, payload = exporter.render_version(network.state_dict(), Progress(7, 8, 9))
    assert PolicyDescription.from_message(description.to_message()) == description
    assert not description.uniform
    assert (description.version, description.optimizer_steps, description.env_steps_trained) == (7, 8, 9)
    assert description.size_bytes == len(payload)
    session = open_session(payload)
    assert tuple(item.name for item in session.get_inputs()) == description.inputs
    assert tuple(item.name for item in session.get_outputs()) == description.outputs
    for item, spec in zip(session.get_inputs(), network.spec.observations, strict=False):
        assert item.shape == ["batch", *spec.shape]
    graph = onnx.load_model_from_string(payload).graph
    for item, spec in zip(graph.input, network.spec.observations, strict=False):
        assert onnx.helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type) == spec.dtype


def test_memory_passes_its_check(recurrent: PolicyNetwork) -> None:
    """A network with an LSTM is exported with its memory as input and output."""
    exporter = exporter_of(recurrent)
    exporter.verify()
    assert exporter.description.inputs == ("obs_0", "action_masks", "recurrent_in")
    assert exporter.description.outputs == ("mean", "log_std", "logits", "recurrent_out")
    assert (exporter.description.memory_size, exporter.description.memory_stride) == (8, 4)


def test_distributions_and_transform() -> None:
    """The header has the distribution and the transform of continuous actions."""
    box = ActionSpec(1, (2,), continuous_low=(-2.0,), continuous_high=(4.0,))
    network = vector_network(box)
    ours = describe(network, behavior_index=0, generation=1)
    assert ours.continuous_distribution is Distribution.GAUSSIAN_CLIP3
    assert ours.discrete_distribution is Distribution.CATEGORICAL
    assert (ours.action_transform.squash, ours.action_transform.low) == (Squash.CLIP3_DIV3, (-2.0,))
    assert not ours.deterministic
    assert describe(network, behavior_index=0, generation=1, deterministic=True).deterministic
    discrete = describe(vector_network(ActionSpec(0, (2,))), behavior_index=0, generation=1)
    assert discrete.continuous_distribution is Distribution.UNSPECIFIED


class OneEyed(PolicyNetwork):
    """A network that reads only its first observation and no mask."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Ignores all but the first observation."""
        return super().forward([observations[0], observations[0]])


def test_an_unused_input_stays_an_input() -> None:
    """An unused input stays an input of the graph."""
    observation = ObservationSpec("a", np.dtype("float32"), (5,))
    spec = BehaviorSpec("Walker", (observation, ObservationSpec("b", np.dtype("float32"), (5,))), ActionSpec(0, (2,)))
    exporter = exporter_of(OneEyed(spec, NetworkSettings(hidden_units=8)))
    exporter.verify()
    session = open_session(exporter.render(OneEyed(spec, NetworkSettings(hidden_units=8)).state_dict()))
    assert [item.name for item in session.get_inputs()] == ["obs_0", "obs_1", "action_masks"]


class Counting(PolicyNetwork):
    """A network with state that does not affect its output."""

    def __init__(self, spec: BehaviorSpec, network_settings: NetworkSettings) -> None:
        super().__init__(spec, network_settings)
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64))
        self.register_buffer("nothing", torch.zeros(0))
        self.unused = torch.nn.Linear(3, 3)


def test_unused_state_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    """Unused parameters are left out, and ONNX Runtime prints no warning."""
    spec = vector_network(ActionSpec(0, (2,))).spec
    network = Counting(spec, NetworkSettings(hidden_units=8))
    exporter = exporter_of(network)
    exporter.verify()
    model = onnx.load_model_from_string(exporter.render(network.state_dict()))
    names = {item.name for item in model.graph.initializer}
    assert names == {name for name in network.state_dict() if not name.startswith(("calls", "nothing", "unused"))}
    assert capfd.readouterr() == ("", "")


def test_the_network_is_left_as_it_was() -> None:
    """Exporting and checking change neither weights nor mode."""
    network = vector_network(ActionSpec(2, (2,)), normalize=True).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    parameters = list(network.parameters())
    exporter_of(network).verify()
    assert network.training
    assert all(ours is theirs for ours, theirs in zip(network.parameters(), parameters, strict=True))
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(parameter.requires_grad for parameter in parameters)


def test_the_graph_is_lean() -> None:
    """The graph of a vector policy has no shape arithmetic."""
    network = vector_network(ActionSpec(3), normalize=True, activation="swish")
    graph = onnx.load_model_from_string(exporter_of(network).render(network.state_dict())).graph
    operators = [node.op_type for node in graph.node if node.op_type not in {"Constant", "Cast"}]
    assert operators == [
        *("Sub", "Div", "Clip"),
        *("Gemm", "Sigmoid", "Mul") * 2,
        "Gemm",
        *("Shape", "Expand"),  # log_std to the batch size
    ]


def test_rendered_files_are_independent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later version does not change the bytes of an earlier one, and is not exported anew."""
    network = vector_network(ActionSpec(3))
    exporter = exporter_of(network)
    monkeypatch.delattr("learner.training.export.onnx.export_graph")
    first = exporter.render(network.state_dict())
    copy = bytes(bytearray(first))
    shake(network)
    second = exporter.render(network.state_dict())
    assert first == copy
    assert first != second
    assert len(first) == len(second)


def test_strided_weights_are_rendered_in_order() -> None:
    """A transposed weight renders as its contiguous copy."""
    network = vector_network(ActionSpec(3))
    exporter = exporter_of(network)
    state = network.state_dict()
    strided = {name: value.t().contiguous().t() if value.dim() == 2 else value for name, value in state.items()}
    assert exporter.render(strided) == exporter.render(state)


def test_another_form_is_refused() -> None:
    """A state of another network is an error that names the entry."""
    exporter = exporter_of(vector_network(ActionSpec(3)))
    state = vector_network(ActionSpec(3)).state_dict()
    with pytest.raises(
        ValueError, match=r"gaussian\.mean\.weight is .* of shape \[4, 16\]; the exported network needs"
    ):
        exporter.render(vector_network(ActionSpec(4)).state_dict() | {"gaussian.log_std": state["gaussian.log_std"]})
    turned = {name: value.t() if value.dim() == 2 else value for name, value in state.items()}
    with pytest.raises(ValueError, match=r"of shape \[16, 3\]; the exported network needs .* \[3, 16\]"):
        exporter.render(state | {"gaussian.mean.weight": turned["gaussian.mean.weight"]})
    with pytest.raises(ValueError, match=r"torch\.float64"):
        exporter.render({name: value.double() for name, value in state.items()})
    del state["gaussian.log_std"]
    with pytest.raises(KeyError, match=r"gaussian\.log_std"):
        exporter.render(state)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_never_published(value: float) -> None:
    """Non-finite weights end the training with an exit code and name the entry."""
    network = vector_network(ActionSpec(3))
    exporter = exporter_of(network)
    with torch.no_grad():
        name, parameter = next(iter(network.named_parameters()))
        parameter.view(-1)[3] = value
    with pytest.raises(UserError, match=re.escape(name)) as caught:
        exporter.render(network.state_dict())
    assert caught.value.exit_code == ExitCode.TRAINER_FAILED


def test_the_architecture_hash_is_of_the_form_alone() -> None:
    """The hash depends on widths, activations, types and inputs, and not on weights."""
    action = ActionSpec(3)
    ours = exporter_of(vector_network(action)).description.architecture_hash
    assert len(ours) == 32
    torch.manual_seed(99)
    assert exporter_of(vector_network(action)).description.architecture_hash == ours
    others = [
        vector_network(action, activation="swish"),
        vector_network(action, num_layers=3),
        vector_network(action, normalize=True),
        vector_network(ActionSpec(4)),
        vector_network(ActionSpec(3, (2,))),
        Counting(vector_network(action).spec, NetworkSettings(hidden_units=16)),
    ]
    hashes = {exporter_of(network).description.architecture_hash for network in others}
    assert len(hashes | {ours}) == len(others) + 1


class Unexportable(PolicyNetwork):
    """A network with an operator that ONNX lacks."""

    def forward(self, observations: Any, action_masks: Any = None, recurrent_in: Any = None) -> Any:
        """Uses a Bessel function."""
        return super().forward([torch.special.bessel_j0(observations[0])], action_masks)


def test_a_network_that_cannot_be_exported_is_named() -> None:
    """A network that cannot be exported ends the start with a message and its exit code."""
    network = Unexportable(vector_network(ActionSpec(0, (2,))).spec, NetworkSettings())
    with pytest.raises(PolicyCheckFailed, match="'Walker' cannot be exported") as caught:
        exporter_of(network)
    assert caught.value.exit_code == ExitCode.POLICY_CHECK_FAILED


def model_of(sizes: list[int], *, raw: bool = True) -> onnx.ModelProto:
    """Makes a model with initializers ``w0, w1, ...`` of these lengths, and nodes and metadata around them."""
    tensors = []
    for index, size in enumerate(sizes):
        values = np.full(size, index, np.float32)
        tensors.append(onnx.helper.make_tensor(f"w{index}", 1, [size], values.tobytes() if raw else values, raw=raw))
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ["batch", 2]) for name in "xy")
    constant = onnx.helper.make_tensor("inside a node", 1, [2], np.ones(2, np.float32).tobytes(), raw=True)
    nodes = [onnx.helper.make_node("Constant", [], ["c"], value=constant), onnx.helper.make_node("Relu", ["x"], ["y"])]
    model = onnx.helper.make_model(onnx.helper.make_graph(nodes, "graph", [x], [y], tensors))
    onnx.helper.set_model_props(model, {"key": "value" * 100})
    return model


@given(st.lists(st.integers(0, 5000), max_size=8), st.randoms())
def test_new_bytes_stand_where_the_old_ones_stood(sizes: list[int], random: object) -> None:
    """Splicing replaces only the bytes of weights, for any sizes."""
    del random
    model = model_of(sizes)
    names = [f"w{index}" for index in range(len(sizes))]
    splicer = Splicer(model.SerializeToString(), names)
    weights = {name: np.full(size, -3.5 - size, np.float32) for name, size in zip(names, sizes, strict=True)}
    rendered = splicer.render({name: value.view(np.uint8) for name, value in weights.items()})
    for tensor in model.graph.initializer:
        tensor.raw_data = weights[tensor.name].tobytes()
    assert onnx.load_model_from_string(rendered) == model
    assert rendered == model.SerializeToString()


def test_only_named_initializers_change() -> None:
    """Constants of the exporter are not initializers of the network."""
    splicer = Splicer(model_of([3, 4]).SerializeToString(), {"w1", "not in the graph"})
    rendered = onnx.load_model_from_string(splicer.render({"w1": np.zeros(16, np.uint8)}))
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in rendered.graph.initializer}
    assert values == {"w0": [0.0] * 3, "w1": [0.0] * 4}
    with pytest.raises(KeyError):
        splicer.render({})


def test_a_weight_of_another_size_is_refused() -> None:
    """A weight of another size is refused."""
    splicer = Splicer(model_of([3]).SerializeToString(), {"w0"})
    with pytest.raises(ValueError, match="w0 has 16 bytes; the exported graph has 12"):
        splicer.render({"w0": np.zeros(16, np.uint8)})


def test_initializers_without_raw_data_have_no_slot() -> None:
    """Initializers without raw data have no slot."""
    assert find_slots(model_of([3], raw=False).SerializeToString()) == {}


def test_fields_of_every_wire_type_are_passed_over() -> None:
    """Numbers of fixed and variable size before the graph move its slots, and nothing else."""
    model = model_of([3, 40]).SerializeToString()
    numbers = [bytes([15 << 3 | 5, *range(4)]), bytes([15 << 3 | 1, *range(8)]), bytes([15 << 3, 0x80, 0x80, 1])]
    moved = find_slots(b"".join(numbers) + model)
    assert moved == {name: Slot(slot.offset + 18, slot.size_bytes) for name, slot in find_slots(model).items()}
    assert moved.keys() == {"w0", "w1"}


def test_what_is_no_protobuf_is_said_to_be_so() -> None:
    """An unknown wire type is an error."""
    with pytest.raises(ValueError, match="not an ONNX model"):
        find_slots(b"\x0f\x00")
