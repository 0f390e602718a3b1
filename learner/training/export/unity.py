"""The model that Unity loads: one ONNX file with the action sampling inside, as ML-Agents' packages expect it.

Unlike the policy that actors run, this model takes every observation as float32, samples actions in the graph, and uses
only old operators (opset 9, IR version 4), which Unity's importers can read.

Its outputs follow Unity's convention: continuous actions in [-1, 1], ``clip(draw, -3, 3) / 3`` or ``tanh(draw)``. For
an environment with its own bounds (a gymnasium ``Box``), the code that loads the model maps [-1, 1] onto them: its metadata
has names, bounds and scales (`learner.training.export.card`).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rollcast.descriptions import DISCRETE_LOG_PROBS, MODEL_PROPERTY, OBSERVATIONS_PROPERTY, RECURRENT_OUT
from rollcast.enums import ObservationKind
from rollcast.specs import ObservationSpec
from torch import Tensor, nn

from learner.shared.files import write_file
from learner.training.export.card import Origin, card_of
from learner.training.export.describe import input_names
from learner.training.export.graph import declare, trace
from learner.training.networks.policy import PolicyNetwork
from learner.training.networks.squashed import squash_of, squashed

if TYPE_CHECKING:
    from onnx import GraphProto

OPSET = 9
IR_VERSION = 4  # the lowest that supports opset 9 and initializers that are not inputs
API_VERSION = 3.0
"""Version of ML-Agents' model format; its packages accept 2 and 3."""


class ExportFailed(Exception):  # noqa: N818 - it says what happened
    """The model could not be exported or written; training can continue."""


def export_unity(network: PolicyNetwork, path: Path, *, origin: Origin | None = None) -> None:
    """Writes the model, whole or not at all.

    Args:
        network: The acting network, on any device; not changed.
        path: The file.
        origin: Run and step, for the metadata.

    Raises:
        ExportFailed: An operator cannot be expressed, the disk is full, or similar. No other exception is raised.
    """
    try:
        write_file(path, render_unity(network, origin))
    except Exception as error:
        raise ExportFailed(f"cannot write a model for Unity to {path}: {type(error).__name__}: {error}") from error


def render_unity(network: PolicyNetwork, origin: Origin | None = None) -> bytes:
    """Returns the bytes of the model; see `export_unity`.

    Inputs: ``obs_i`` ``[batch, *shape]`` of the i-th observation that the policy reads, ``action_masks`` ``[batch, sum(branches)]`` with discrete actions,
    ``recurrent_in`` ``[batch, 1, memory]`` with memory; all float32. An image whose wire type is a byte uses Unity's
    range, 0 to 1. Unity counts an agent's sensors the same way, without those of ``critic_only`` in the build that ships.
    The names of the read observations are then a property of the file, for programs that have the others as well.
    """
    import onnx  # noqa: PLC0415 - takes a third of a second, and only a checkpoint needs it

    network = copy.deepcopy(network).cpu().eval()
    wrapper = _UnityModel(network)
    values = wrapper.example()
    outputs = wrapper.output_names()
    batched = {*values, *(name for name in outputs if name.endswith(("_actions", DISCRETE_LOG_PROBS, RECURRENT_OUT)))}
    with torch.no_grad():
        model = trace(wrapper, values, outputs, opset=OPSET, batched=batched)
        results = dict(zip(outputs, wrapper(*values.values()), strict=True))
    _leave_out_what_does_nothing(model.graph)
    declare(model.graph.input, values, batched=batched)
    declare(model.graph.output, results, batched=batched)
    _hide(model.graph, DISCRETE_LOG_PROBS)
    model.ir_version = IR_VERSION
    model.producer_name, model.producer_version = "rollcast", ""
    properties = {MODEL_PROPERTY: card_of(network, origin or Origin())}
    if len(network.reads) < len(network.spec.observations):
        names = [network.spec.observations[index].name for index in network.reads]
        properties[OBSERVATIONS_PROPERTY] = json.dumps(names)
    onnx.helper.set_model_props(model, properties)
    onnx.checker.check_model(model)
    return bytes(model.SerializeToString())


def _hide(graph: GraphProto, name: str) -> None:
    """Makes an output a value inside of the graph, which keeps its name: programs that know it declare it an output again."""
    for index, output in enumerate(graph.output):
        if output.name == name:
            del graph.output[index]
            return


def _leave_out_what_does_nothing(graph: GraphProto) -> None:
    """Removes casts from float to float, and the expansion of the standard deviation, which broadcasting replaces.

    Plain operators remain, as in ML-Agents' own models, for which Unity's importers were made.
    """
    from onnx import TensorProto  # noqa: PLC0415 - see render_unity

    floats = {item.name for item in graph.input if item.type.tensor_type.elem_type == TensorProto.FLOAT}
    renamed: dict[str, str] = {}
    for node in graph.node:
        if node.op_type == "Mul" and node.input[0] in floats:  # an image, scaled to its wire range
            floats.add(node.output[0])
        is_cast = node.op_type == "Cast" and node.input[0] in floats and node.attribute[0].i == TensorProto.FLOAT
        if is_cast or (node.op_type == "Expand" and _is_factor(graph, node.output[0])):
            renamed[node.output[0]] = node.input[0]
    for node in graph.node:
        names = [renamed.get(name, name) for name in node.input]
        del node.input[:]
        node.input.extend(names)
    kept = [node for node in graph.node if node.output[0] not in renamed]
    used = {name for node in kept for name in node.input}
    kept = [node for node in kept if node.op_type != "Shape" or node.output[0] in used]
    del graph.node[:]
    graph.node.extend(kept)


def _is_factor(graph: GraphProto, name: str) -> bool:
    """Returns whether a value is used only as a factor, directly or through its exponential."""
    consumers = [node for node in graph.node if name in node.input]
    return bool(consumers) and all(
        node.op_type == "Mul" or (node.op_type == "Exp" and _is_factor(graph, node.output[0])) for node in consumers
    )


class _UnityModel(nn.Module):
    """A policy network with Unity's inputs and outputs.

    Args:
        network: Network on the CPU.
    """

    version_number: Tensor
    memory_size: Tensor
    continuous_shape: Tensor
    discrete_shape: Tensor

    def __init__(self, network: PolicyNetwork) -> None:
        super().__init__()
        self.network = network
        action = network.spec.action
        # Unity reads them as float tensors.
        self.register_buffer("version_number", torch.tensor([API_VERSION]))
        self.register_buffer("memory_size", torch.tensor([float(network.memory_size)]))
        self.register_buffer("continuous_shape", torch.tensor([float(action.continuous_size)]))
        self.register_buffer("discrete_shape", torch.tensor([[float(size) for size in action.discrete_branches]]))

    def example(self) -> dict[str, Tensor]:
        """Returns the inputs of a batch of two, by name."""
        spec, memory, reads = self.network.spec, self.network.memory_size, self.network.reads
        values = [torch.zeros(2, *spec.observations[index].shape) for index in reads]
        if spec.action.discrete_branches:
            values.append(torch.ones(2, sum(spec.action.discrete_branches)))
        if memory:
            values.append(torch.zeros(2, 1, memory))
        others = input_names(self.network)[len(reads) :]
        return dict(zip((*(f"obs_{place}" for place in range(len(reads))), *others), values, strict=True))

    def output_names(self) -> list[str]:
        """Returns the outputs in ML-Agents' order, then the value that the graph keeps by name."""
        names = ["version_number", "memory_size"]
        for kind, present in (
            ("continuous", self.network.spec.action.continuous_size),
            ("discrete", self.network.spec.action.discrete_branches),
        ):
            if present:
                names += [f"{kind}_actions", f"{kind}_action_output_shape", f"deterministic_{kind}_actions"]
        if self.network.memory_size:
            names.append(RECURRENT_OUT)
        return [*names, DISCRETE_LOG_PROBS] if self.network.spec.action.discrete_branches else names

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        """Computes the outputs of `output_names` from the inputs of `example`."""
        spec = self.network.spec
        rest = list(inputs)
        observations = [_as_on_the_wire(rest.pop(0), spec.observations[index]) for index in self.network.reads]
        masks = rest.pop(0) if spec.action.discrete_branches else None
        memory = rest.pop(0).squeeze(1) if self.network.memory_size else None
        mean, log_std, logits, memory_out = self.network(self.network.placed(observations), masks, memory)
        outputs = [self.version_number, self.memory_size]
        if mean is not None:
            draw = mean + torch.exp(log_std) * torch.randn_like(mean)
            squash = squash_of(self.network)
            outputs += [squashed(draw, squash), self.continuous_shape, squashed(mean, squash)]
        if logits is not None:
            branches = logits.split(list(spec.action.discrete_branches), dim=1)
            outputs += [_sampled(branches), self.discrete_shape, _most_likely(branches)]
        if memory_out is not None:
            outputs.append(memory_out.unsqueeze(1))
        if logits is not None:
            outputs.append(logits)
        return tuple(outputs)


def _as_on_the_wire(observation: Tensor, spec: ObservationSpec) -> Tensor:
    """Converts an observation from Unity's floats to the wire form that the network expects."""
    if spec.kind is ObservationKind.CATEGORICAL:
        return observation.to(torch.int64)
    if spec.kind is ObservationKind.IMAGE and spec.dtype.kind in "iu" and spec.scale:
        return observation * spec.scale  # the network divides by it
    return observation


def _sampled(branches: Sequence[Tensor]) -> Tensor:
    """Draws an action of each branch from log-probabilities ``[B, choices]``: ``[B, branches]`` int64."""
    return torch.cat([torch.multinomial(torch.exp(branch), 1) for branch in branches], dim=1)


def _most_likely(branches: Sequence[Tensor]) -> Tensor:
    return torch.cat([torch.argmax(branch, dim=1, keepdim=True) for branch in branches], dim=1)
