"""Small policies for players, whose output depends only on the number of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from rollcast.enums import Distribution, Squash
from rollcast.policies import PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.transforms import ActionTransform


def flat_policy(
    spec: BehaviorSpec, mean: Sequence[float] = (), logits: Sequence[float] = (), *, is_fragile: bool = False
) -> bytes:
    """Returns a policy with constant means and logits, 0 by default.

    Args:
        spec: What it must see and do.
        mean: Of the continuous axes.
        logits: Of all branches.
        is_fragile: It fails when an agent sees 1 or more.
    """
    action = spec.action
    size = spec.observations[0].size
    outputs = {"mean": (action.continuous_size, mean), "log_std": (action.continuous_size, ())}
    if action.mask_size:
        outputs["logits"] = (action.mask_size, logits)
    if not action.continuous_size:
        del outputs["mean"], outputs["log_std"]
    nodes, constants, ports = [], [], []
    for name, (width, values) in outputs.items():
        bias = np.asarray(values or [0.0] * width, np.float32)
        constants += [
            numpy_helper.from_array(np.zeros((size, width), np.float32), f"{name}_weights"),
            numpy_helper.from_array(bias, f"{name}_bias"),
        ]
        nodes += [
            helper.make_node("MatMul", ["obs_0", f"{name}_weights"], [f"{name}_raw"]),
            helper.make_node("Add", [f"{name}_raw", f"{name}_bias"], [name]),
        ]
        ports.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width]))
    if is_fragile:  # it looks for a second number where there is one
        constants.append(numpy_helper.from_array(np.zeros(1, np.float32), "only"))
        nodes[:0] = [
            helper.make_node("ReduceMax", ["obs_0"], ["largest"], keepdims=0),
            helper.make_node("Cast", ["largest"], ["index"], to=TensorProto.INT64),
            helper.make_node("Gather", ["only", "index"], ["nothing"]),
            helper.make_node("Add", ["obs_0", "nothing"], ["passed"]),
        ]
        for node in nodes:
            if node.op_type == "MatMul":
                node.input[0] = "passed"
    seen = helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["batch", size])
    graph = helper.make_graph(nodes, "policy", [seen], ports, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def described(spec: BehaviorSpec) -> PolicyDescription:
    """Returns what a learner says of a `flat_policy`."""
    action = spec.action
    continuous, discrete = action.continuous_size > 0, bool(action.discrete_branches)
    return PolicyDescription(
        behavior_index=0,
        behavior=spec.name,
        generation=0,
        version=0,
        architecture_hash=bytes(32),
        inputs=("obs_0",),
        outputs=(*(("mean", "log_std") if continuous else ()), *(("logits",) if discrete else ())),
        action_transform=ActionTransform(Squash.CLIP3_DIV3) if continuous else ActionTransform(),
        continuous_distribution=Distribution.GAUSSIAN_CLIP3 if continuous else Distribution.UNSPECIFIED,
        discrete_distribution=Distribution.CATEGORICAL if discrete else Distribution.UNSPECIFIED,
    )
