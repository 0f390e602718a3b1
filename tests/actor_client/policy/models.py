"""Builds tiny policies as ONNX files, with matching descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from rollcast.enums import Distribution, Squash
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.specs import ActionSpec, BehaviorSpec, ObservationSpec
from rollcast.transforms import ActionTransform

OBSERVED = 3


def spec(*, continuous: int = 0, branches: tuple[int, ...] = ()) -> BehaviorSpec:
    """Returns a behavior that sees three numbers and has the given actions."""
    return BehaviorSpec(
        name="Tiny",
        observations=(ObservationSpec("state", np.dtype(np.float32), (OBSERVED,)),),
        action=ActionSpec(continuous_size=continuous, discrete_branches=branches),
    )


def weights(shape: tuple[int, ...], seed: int = 0) -> NDArray[np.float32]:
    """Returns numbers of moderate size."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def graph(
    behavior: BehaviorSpec, *, masked: bool = False, normalize: bool = True, bias: float = 0.0
) -> onnx.ModelProto:
    """Returns linear functions of the first observation: mean, log_std and logits, if the behavior has them.

    Args:
        behavior: See `spec`.
        masked: Take masks as an input, and give forbidden choices about -1e8.
        normalize: Log-softmax each branch.
        bias: Added to each output.
    """
    action = behavior.action
    nodes: list[Any] = []
    outputs: list[str] = []
    tensors = [numpy_helper.from_array(np.array(bias, np.float32), "bias")]
    inputs = [helper.make_tensor_value_info("obs_0", TensorProto.FLOAT, ["agents", OBSERVED])]

    def linear(name: str, size: int, seed: int) -> str:
        tensors.append(numpy_helper.from_array(weights((OBSERVED, size), seed), f"{name}_weight"))
        nodes.append(helper.make_node("MatMul", ["obs_0", f"{name}_weight"], [f"{name}_product"]))
        nodes.append(helper.make_node("Add", [f"{name}_product", "bias"], [name]))
        return name

    if action.continuous_size:
        outputs += [linear("mean", action.continuous_size, 1), linear("log_std", action.continuous_size, 2)]
    if action.discrete_branches:
        scores = linear("scores", action.mask_size, 3)
        if masked:
            inputs.append(
                helper.make_tensor_value_info("action_masks", TensorProto.FLOAT, ["agents", action.mask_size])
            )
            tensors.append(numpy_helper.from_array(np.array(1e8, np.float32), "huge"))
            nodes.append(helper.make_node("Mul", ["action_masks", "huge"], ["allowed"]))
            nodes.append(helper.make_node("Sub", ["allowed", "huge"], ["penalty"]))
            nodes.append(helper.make_node("Add", [scores, "penalty"], ["masked_scores"]))
            scores = "masked_scores"
        tensors.append(numpy_helper.from_array(np.array(action.discrete_branches, np.int64), "sizes"))
        parts = [f"part_{branch}" for branch in range(len(action.discrete_branches))]
        nodes.append(helper.make_node("Split", [scores, "sizes"], parts, axis=1))
        if normalize:
            nodes += [helper.make_node("LogSoftmax", [part], [f"log_{part}"], axis=1) for part in parts]
            parts = [f"log_{part}" for part in parts]
        nodes.append(helper.make_node("Concat", parts, ["logits"], axis=1))
        outputs.append("logits")
    sizes = {"mean": action.continuous_size, "log_std": action.continuous_size, "logits": action.mask_size}
    made = helper.make_graph(
        nodes,
        "tiny",
        inputs,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["agents", sizes[name]]) for name in outputs],
        tensors,
    )
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def described(model: onnx.ModelProto, behavior: BehaviorSpec, **changes: Any) -> tuple[PolicyDescription, bytes]:
    """Returns a description that fits, with some fields changed, and the bytes of the file.

    Args:
        model: See `graph`.
        behavior: What it was made for.
        changes: Fields of the description to replace.
    """
    payload = model.SerializeToString()
    continuous, branches = behavior.action.continuous_size > 0, bool(behavior.action.discrete_branches)
    description = PolicyDescription(
        behavior_index=0,
        behavior=behavior.name,
        generation=3,
        version=7,
        architecture_hash=bytes(32),
        inputs=tuple(node.name for node in model.graph.input),
        outputs=tuple(node.name for node in model.graph.output),
        continuous_distribution=Distribution.GAUSSIAN_CLIP3 if continuous else Distribution.UNSPECIFIED,
        discrete_distribution=Distribution.CATEGORICAL if branches else Distribution.UNSPECIFIED,
        action_transform=ActionTransform(Squash.CLIP3_DIV3 if continuous else Squash.NONE),
    )
    return replace(describe_payload(description, payload), **changes), payload


def tensor(name: str, values: NDArray[Any]) -> onnx.TensorProto:
    """Returns a named initializer."""
    return numpy_helper.from_array(values, name)
