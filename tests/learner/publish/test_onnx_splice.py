"""Finding and replacing the bytes of initializers."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from learner.publish.splice import Splicer, find_slots


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
    """For any sizes, the spliced model is the model with other weights, and nothing else is touched."""
    del random
    model = model_of(sizes)
    names = [f"w{index}" for index in range(len(sizes))]
    splicer = Splicer(model.SerializeToString(), names)
    weights = {name: np.full(size, -3.5 - size, np.float32) for name, size in zip(names, sizes, strict=True)}
    rendered = splicer.render({name: value.view(np.uint8) for name, value in weights.items()})
    assert splicer.size_bytes == len(rendered)
    for tensor in model.graph.initializer:
        tensor.raw_data = weights[tensor.name].tobytes()
    assert onnx.load_model_from_string(rendered) == model
    assert rendered == model.SerializeToString()


def test_only_named_initializers_change() -> None:
    """Constants that the exporter made are not asked for."""
    splicer = Splicer(model_of([3, 4]).SerializeToString(), {"w1", "not in the graph"})
    rendered = onnx.load_model_from_string(splicer.render({"w1": np.zeros(16, np.uint8)}))
    values = {tensor.name: numpy_helper.to_array(tensor).tolist() for tensor in rendered.graph.initializer}
    assert values == {"w0": [0.0] * 3, "w1": [0.0] * 4}
    with pytest.raises(KeyError):
        splicer.render({})


def test_a_weight_of_another_size_is_refused() -> None:
    """It would write over its neighbour."""
    splicer = Splicer(model_of([3]).SerializeToString(), {"w0"})
    with pytest.raises(ValueError, match="w0 has 16 bytes; the exported graph has 12"):
        splicer.render({"w0": np.zeros(16, np.uint8)})


def test_initializers_without_raw_data_have_no_slot() -> None:
    """Typed data cannot be replaced by bytes, and is not taken for it."""
    assert find_slots(model_of([3], raw=False).SerializeToString()) == {}


def test_what_is_no_protobuf_is_said_to_be_so() -> None:
    """A wire type that does not exist is an error."""
    with pytest.raises(ValueError, match="no ONNX model"):
        find_slots(b"\x0f\x00")
