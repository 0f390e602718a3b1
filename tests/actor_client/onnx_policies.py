"""Builds small ONNX policies: one linear layer with log-probabilities as output."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rollcast.policies import describe_payload

from learner.shared.policies import StoredPolicy
from tests.actor_client.scripted import policy_description


def endless_policy(*, at_once: bool) -> bytes:
    """Returns a policy of some hundred bytes that computes for ever: at once, or on observations that are not all zero."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["on"], ["on_"]), helper.make_node("Identity", ["x"], ["x_"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 2]),
        ],
        [
            helper.make_tensor_value_info("on_", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x_", TensorProto.FLOAT, ["batch", 2]),
        ],
    )
    graph = helper.make_graph(
        [
            helper.make_node("ReduceL1", ["obs_0"], ["size"], keepdims=0),
            helper.make_node("Add", ["size", "least"], ["more"]),
            helper.make_node("Mul", ["more", "many"], ["times"]),
            helper.make_node("Cast", ["times"], ["count"], to=TensorProto.INT64),
            helper.make_node("MatMul", ["obs_0", "weights"], ["raw"]),
            helper.make_node("Loop", ["count", "true", "raw"], ["same"], body=body),
            helper.make_node("LogSoftmax", ["same"], ["logits"]),
        ],
        "policy",
        [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
        [
            numpy_helper.from_array(np.array(at_once, np.float32), "least"),
            numpy_helper.from_array(np.array(1e18, np.float32), "many"),
            numpy_helper.from_array(np.array([True])[0:1].reshape(()), "true"),
            numpy_helper.from_array(np.zeros((4, 2), np.float32), "weights"),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    payload: bytes = model.SerializeToString()
    return payload


def linear_policy(
    version: int, *, generation: int = 1, name: str = "CartPole", observations: int = 4, choices: int = 2
) -> StoredPolicy:
    """Returns a policy that sees `observations` numbers and chooses one of `choices`."""
    weights = np.random.default_rng(version).normal(scale=0.1, size=(observations, choices)).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["obs_0", "weights"], ["raw"]),
            helper.make_node("LogSoftmax", ["raw"], ["logits"]),
        ],
        "policy",
        [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", observations])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", choices])],
        [numpy_helper.from_array(weights, "weights")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    payload = model.SerializeToString()
    return StoredPolicy(describe_payload(policy_description(name, 0, generation, version), payload), payload)
