"""A 2x64 policy that balances CartPole, as an ONNX file made without torch."""

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rollcast.enums import Distribution, Encoding, PolicyFormat
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.specs import BehaviorSpec

from actor_client.policy.runner import Policy

HIDDEN = 64
GAINS = (0.1, 0.2, 2.0, 0.5)
"""On position, speed, angle and angular speed; pushing to the side of their sum's sign balances for 500 steps."""
SHARPNESS = 40.0
_OPSET = 17
_IR_VERSION = 8


def balancing_policy(spec: BehaviorSpec) -> Policy:
    """Returns a policy for CartPole's spec whose episodes are as long as those of a trained one.

    With short episodes the limit would be one of resetting environments.
    """
    payload = _model()
    description = PolicyDescription(
        behavior_index=0,
        behavior=spec.name,
        generation=1,
        version=1,
        architecture_hash=bytes(32),
        inputs=("obs_0",),
        outputs=("logits",),
        discrete_distribution=Distribution.CATEGORICAL,
        format=PolicyFormat.ONNX,
        encoding=Encoding.RAW,
    )
    return Policy.load(describe_payload(description, payload), payload, spec)


def _model() -> bytes:
    first, second, last = (np.zeros(shape, np.float32) for shape in ((4, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, 2)))
    # One unit carries the sum through both layers; the others compute zeros, in the same time.
    first[:, 0], second[0, 0], last[0] = GAINS, 1.0, (-SHARPNESS / 2, SHARPNESS / 2)
    weights: dict[str, NDArray[np.float32]] = {"w1": first, "w2": second, "w3": last}
    for layer in (1, 2, 3):
        weights[f"b{layer}"] = np.zeros(weights[f"w{layer}"].shape[1], np.float32)
    nodes = [
        helper.make_node("Gemm", ["obs_0", "w1", "b1"], ["sum1"]),
        helper.make_node("Tanh", ["sum1"], ["hidden1"]),
        helper.make_node("Gemm", ["hidden1", "w2", "b2"], ["sum2"]),
        helper.make_node("Tanh", ["sum2"], ["hidden2"]),
        helper.make_node("Gemm", ["hidden2", "w3", "b3"], ["scores"]),
        helper.make_node("LogSoftmax", ["scores"], ["logits"], axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "balance",
        [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR_VERSION)
    onnx.checker.check_model(model)
    payload: bytes = model.SerializeToString()
    return payload
