"""Converts a policy network to an ONNX graph whose weights are replaceable.

Every parameter and buffer is a graph *input* during tracing, under the name of its ``state_dict`` key, and then becomes
an initializer of that name. An ordinary export folds weights into new constants and renames others, so that replacing
them by name fails silently.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Collection, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from learner.training.export.describe import input_names, output_names
from learner.training.networks.policy import PolicyNetwork

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

OPSET = 17
_BATCH = 3  # of the traced example; no other axis is likely to have this length, so that a mix-up cannot pass

# The tracer has no unsigned type wider than a byte; a graph input of that type is traced as its signed counterpart.
_TRACED_AS = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}


def export_graph(network: PolicyNetwork) -> ModelProto:
    """Exports the graph with every used state entry as an initializer of zeros.

    Args:
        network: Network on any device; not changed.

    Returns:
        Model with inputs and outputs as in `describe`, and a dynamic first axis. Inputs that the network does not use
        are declared too. Equal networks give equal graphs.
    """
    import onnx  # noqa: PLC0415 - takes a third of a second, and only learners that start need it

    network = copy.deepcopy(network).cpu().eval()
    state = tensors_of(network)
    inputs = input_names(network)
    outputs = output_names(network.spec, network.memory_size)
    clash = sorted(state.keys() & {*inputs, *outputs})
    if clash:
        raise ValueError(f"the network has parameters named like inputs or outputs: {', '.join(clash)}; rename them")
    example = example_inputs(network)
    stateless = _Stateless(network, tuple(state))
    model = trace(stateless, {**example, **state}, outputs, opset=OPSET, batched={*inputs, *outputs})
    declare(model.graph.input, example, batched=inputs)
    _convert_inputs(model.graph, network)
    used = {name for node in model.graph.node for name in node.input}
    for name, tensor in state.items():
        if name in used:
            kind = onnx.helper.np_dtype_to_tensor_dtype(tensor.numpy().dtype)
            zeros = bytes(tensor.numel() * tensor.element_size())
            model.graph.initializer.append(onnx.helper.make_tensor(name, kind, tensor.shape, zeros, raw=True))
    model.producer_name, model.producer_version = "rollcast", ""
    onnx.checker.check_model(model)
    return model


def trace(
    module: nn.Module, values: Mapping[str, Tensor], outputs: Sequence[str], *, opset: int, batched: Collection[str]
) -> ModelProto:
    """Exports a module by running it once.

    Args:
        module: Takes ``values`` as positional arguments.
        values: An example of each input, by name.
        outputs: A name for each result.
        opset: Version of the ONNX operators.
        batched: Inputs and outputs whose first axis has any length.
    """
    import onnx  # noqa: PLC0415 - see export_graph

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer warns about its age and about shapes that may be constants
        torch.onnx.export(
            module,
            tuple(values.values()),
            buffer,  # type: ignore[arg-type] # its annotation forgets files in memory
            dynamo=False,
            opset_version=opset,
            input_names=list(values),
            output_names=list(outputs),
            dynamic_axes={name: {0: "batch"} for name in (*values, *outputs) if name in batched},
        )
    return onnx.load_model_from_string(buffer.getvalue())


def declare(infos: MutableSequence[ValueInfoProto], values: Mapping[str, Tensor], *, batched: Collection[str]) -> None:
    """Replaces a graph's inputs or outputs: the tracer drops unused inputs and does not know every shape.

    Args:
        infos: Inputs or outputs of the graph; replaced.
        values: An example of each, by name.
        batched: Names of those whose first axis has any length.
    """
    from onnx import helper  # noqa: PLC0415 - see export_graph

    del infos[:]
    for name, value in values.items():
        shape = [*value.shape]
        form = ["batch", *shape[1:]] if name in batched else shape
        kind = helper.np_dtype_to_tensor_dtype(value.detach().numpy().dtype)
        infos.append(helper.make_tensor_value_info(name, kind, form))


def tensors_of(network: nn.Module) -> dict[str, Tensor]:
    """Returns the ``state_dict``, detached, in its order.

    Raises:
        TypeError: The state holds something that is not a tensor, which a policy version cannot carry.
    """
    state = network.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"the state of the network holds {name!r}, which is a {type(value).__name__}, not a tensor")
    return {name: value.detach() for name, value in state.items()}


def example_inputs(network: PolicyNetwork) -> dict[str, Tensor]:
    """Returns inputs of the right types and shapes, by name."""
    spec = network.spec
    values = []
    for observation in (spec.observations[index] for index in network.reads):
        name = observation.dtype.name
        dtype = torch.from_numpy(np.empty(0, _TRACED_AS.get(name, name))).dtype
        values.append(torch.zeros((_BATCH, *observation.shape), dtype=dtype))
    if spec.action.discrete_branches:
        values.append(torch.ones(_BATCH, sum(spec.action.discrete_branches)))
    if network.memory_size:
        values.append(torch.zeros(_BATCH, network.memory_size))
    return dict(zip(input_names(network), values, strict=True))


def call(network: PolicyNetwork, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Runs a network on inputs in the order of `input_names`; returns results in the order of `output_names`."""
    count = len(network.reads)
    rest = list(inputs[count:])
    masks = rest.pop(0) if network.spec.action.discrete_branches else None
    memory = rest.pop(0) if network.memory_size else None
    return tuple(result for result in network(network.placed(inputs[:count]), masks, memory) if result is not None)


class _Stateless(nn.Module):
    """A network as a function of its inputs and its state, without parameters that a tracer could include.

    Args:
        network: A copy for this use only: its parameters become plain attributes. (torch's functional call cannot be
            traced.)
        names: Keys of the state, in the order in which it is passed.
    """

    def __init__(self, network: PolicyNetwork, names: tuple[str, ...]) -> None:
        super().__init__()
        self._hidden = (network,)  # in a tuple, so that it is not a submodule
        self._names = names

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Computes the outputs from the inputs, followed by the state."""
        (network,) = self._hidden
        inputs = len(values) - len(self._names)
        for name, value in zip(self._names, values[inputs:], strict=True):
            path, _, attribute = name.rpartition(".")
            owner = network.get_submodule(path)
            delattr(owner, attribute)
            setattr(owner, attribute, value)
        return call(network, values[:inputs])


def _convert_inputs(graph: GraphProto, network: PolicyNetwork) -> None:
    """Declares inputs whose type could not be traced with their wire type, and converts them first."""
    from onnx import helper  # noqa: PLC0415 - see export_graph

    for port, index in zip(graph.input, network.reads, strict=False):  # masks and memory follow
        observation = network.spec.observations[index]
        if observation.dtype.name not in _TRACED_AS:
            continue
        name, converted = port.name, f"{port.name}/converted"
        traced = port.type.tensor_type.elem_type
        native = observation.dtype.newbyteorder("=")
        port.type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(native)
        for node in graph.node:
            names = [converted if used == name else used for used in node.input]
            del node.input[:]
            node.input.extend(names)
        graph.node.insert(0, helper.make_node("Cast", [name], [converted], f"/{converted}", to=traced))
