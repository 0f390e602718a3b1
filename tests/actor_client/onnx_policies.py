"""Builds small ONNX policies: one linear layer with log-probabilities as output."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rollcast.policies import describe_payload

from learner.link.policies import StoredPolicy
from tests.actor_client.scripted import policy_description


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
