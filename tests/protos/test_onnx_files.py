"""Tests that models with external data are found."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from rollcast.onnx_files import BadModel, check_self_contained

from tests.actor_client.policy import models


def external() -> onnx.TensorProto:
    """Returns a tensor whose data is in a file."""
    tensor = TensorProto(name="secret", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="/etc/passwd")
    return tensor


def wrap(**parts: Any) -> bytes:
    """Returns a model whose graph has the given parts."""
    return bytes(onnx.ModelProto(graph=onnx.GraphProto(**parts)).SerializeToString())


def if_node(tensor: onnx.TensorProto) -> onnx.NodeProto:
    """Returns a node with a subgraph that holds a tensor."""
    return helper.make_node("If", ["x"], ["y"], then_branch=onnx.GraphProto(initializer=[tensor]))


def length(number: int) -> bytes:
    """Encodes a number as a protobuf varint."""
    return bytes([number & 0x7F | 0x80]) + length(number >> 7) if number > 0x7F else bytes([number])


def judge(data: bytes) -> str:
    """Returns what is said of a model."""
    try:
        check_self_contained(data)
    except BadModel as error:
        return str(error)
    return "passes"


def test_an_ordinary_model_passes() -> None:
    """A model whose weights are in the file passes, with subgraphs."""
    behavior = models.spec(continuous=2, branches=(3, 2))
    check_self_contained(models.graph(behavior).SerializeToString())
    check_self_contained(wrap(node=[if_node(numpy_helper.from_array(np.ones(3, np.float32)))]))


@pytest.mark.parametrize(
    "model",
    [
        wrap(initializer=[external()]),
        wrap(node=[helper.make_node("Constant", [], ["y"], value=external())]),
        wrap(node=[helper.make_node("Odd", [], ["y"], several=[external()])]),
        wrap(node=[if_node(external())]),
        wrap(node=[helper.make_node("Loop", ["x"], ["y"], body=onnx.GraphProto(node=[if_node(external())]))]),
        wrap(sparse_initializer=[onnx.SparseTensorProto(values=external())]),
        wrap(sparse_initializer=[onnx.SparseTensorProto(indices=external())]),
        bytes(onnx.ModelProto(functions=[onnx.FunctionProto(node=[if_node(external())])]).SerializeToString()),
        bytes(
            onnx.ModelProto(
                training_info=[onnx.TrainingInfoProto(algorithm=onnx.GraphProto(initializer=[external()]))]
            ).SerializeToString()
        ),
    ],
)
def test_external_data_is_found_everywhere(model: bytes) -> None:
    """External data is found in initializers, attributes, subgraphs, sparse tensors, functions and training graphs."""
    with pytest.raises(BadModel, match="separate file"):
        check_self_contained(model)


def test_either_sign_of_external_data_is_enough() -> None:
    """The location flag without a file and a file without the flag are both refused."""
    flagged, named = external(), external()
    flagged.ClearField("external_data")
    named.ClearField("data_location")
    for tensor in (flagged, named):
        with pytest.raises(BadModel):
            check_self_contained(wrap(initializer=[tensor]))


def test_endless_nesting_is_refused() -> None:
    """Too deeply nested graphs are refused."""
    graph = onnx.GraphProto()
    for _ in range(30):
        graph = onnx.GraphProto(node=[helper.make_node("If", ["x"], ["y"], then_branch=graph)])
    deep = bytes(graph.SerializeToString())
    # The protobuf library refuses to write deeper messages, so the rest is written by hand: node, attribute, graph.
    for _ in range(20):
        for key in (b"\x32", b"\x2a", b"\x0a"):
            deep = key + length(len(deep)) + deep

    with pytest.raises(BadModel, match="nest more than"):
        check_self_contained(b"\x3a" + length(len(deep)) + deep)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_judged(data: bytes) -> None:
    """Random bytes raise BadModel or pass as a message without tensors."""
    assert judge(data)
