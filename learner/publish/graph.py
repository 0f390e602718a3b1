"""From a policy network to an ONNX graph whose weights are not part of it.

Every parameter and buffer is a graph *input* while the network is traced, under the name of its ``state_dict`` key, and
becomes an initializer of that name afterwards. An ordinary export would not do: it folds weights into new constants
and renames others, so that replacing them by name goes wrong without a sign.
"""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Collection, Mapping, MutableSequence, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from rollcast.specs import BehaviorSpec
from torch import Tensor, nn

from learner.networks.policy import PolicyNetwork
from learner.publish.describe import input_names, output_names

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, ValueInfoProto

OPSET = 17
_BATCH = 3  # of the traced example; no other axis is likely to be as long, so that a mix-up cannot pass

# The tracer has no unsigned type wider than a byte; a graph input of that type is traced as its signed twin.
_TRACED_AS = {"uint16": "int32", "uint32": "int64", "uint64": "int64"}


def export_graph(network: PolicyNetwork) -> ModelProto:
    """Exports the graph with every state entry that it uses as an initializer of zeros.

    Args:
        network: on any device; it is not changed.

    Returns:
        Inputs and outputs as in `describe`, with a dynamic first axis; an input that the network does not use is
        declared all the same. Deterministic: equal networks give equal graphs.
    """
    import onnx  # noqa: PLC0415 - takes a third of a second, and only learners that start need it

    network = copy.deepcopy(network).cpu().eval()
    state = tensors_of(network)
    inputs = input_names(network.spec, network.memory_size)
    outputs = output_names(network.spec, network.memory_size)
    clash = sorted(state.keys() & {*inputs, *outputs})
    if clash:
        raise ValueError(f"the network has parameters named like inputs or outputs: {', '.join(clash)}; rename them")
    example = example_inputs(network)
    stateless = _Stateless(network, tuple(state))
    model = trace(stateless, {**example, **state}, outputs, opset=OPSET, batched={*inputs, *outputs})
    declare(model.graph.input, example, batched=inputs)
    _convert_inputs(model.graph, network.spec)
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
        module: takes ``values`` one by one.
        values: an example of each input, by name.
        outputs: a name for each result.
        opset: version of the ONNX operators.
        batched: inputs and outputs whose first axis has any length.
    """
    import onnx  # noqa: PLC0415 - see export_graph

    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the tracer says that it is old, and that shapes may be constants
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
    """Writes a graph's inputs or outputs anew: the tracer drops inputs without use, and knows not every shape.

    Args:
        infos: of the graph; replaced.
        values: an example of each, by name.
        batched: those whose first axis has any length.
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
        TypeError: it holds something that is not a tensor, which a policy version could not carry.
    """
    state = network.state_dict()
    for name, value in state.items():
        if not isinstance(value, Tensor):
            raise TypeError(f"the state of the network holds {name!r}, which is a {type(value).__name__}, not a tensor")
    return {name: value.detach() for name, value in state.items()}


def example_inputs(network: PolicyNetwork) -> dict[str, Tensor]:
    """Makes inputs of the right types and shapes, by name."""
    spec = network.spec
    values = []
    for observation in spec.observations:
        name = observation.dtype.name
        dtype = torch.from_numpy(np.empty(0, _TRACED_AS.get(name, name))).dtype
        values.append(torch.zeros((_BATCH, *observation.shape), dtype=dtype))
    if spec.action.discrete_branches:
        values.append(torch.ones(_BATCH, sum(spec.action.discrete_branches)))
    if network.memory_size:
        values.append(torch.zeros(_BATCH, network.memory_size))
    return dict(zip(input_names(spec, network.memory_size), values, strict=True))


def call(network: PolicyNetwork, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Runs a network on inputs in the order of `input_names`; returns results in the order of `output_names`."""
    count = len(network.spec.observations)
    rest = list(inputs[count:])
    masks = rest.pop(0) if network.spec.action.discrete_branches else None
    memory = rest.pop(0) if network.memory_size else None
    return tuple(result for result in network(list(inputs[:count]), masks, memory) if result is not None)


class _Stateless(nn.Module):
    """A network as a function of its inputs and its state; it has no parameters that a tracer could take in.

    Args:
        network: a copy for this use alone: its parameters become plain attributes. (torch's own functional call
            refuses to be traced.)
        names: keys of the state, in the order in which it is passed.
    """

    def __init__(self, network: PolicyNetwork, names: tuple[str, ...]) -> None:
        super().__init__()
        self._hidden = (network,)  # in a tuple, so that it is no submodule
        self._names = names

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Takes the inputs, then the state."""
        (network,) = self._hidden
        inputs = len(values) - len(self._names)
        for name, value in zip(self._names, values[inputs:], strict=True):
            path, _, attribute = name.rpartition(".")
            owner = network.get_submodule(path)
            delattr(owner, attribute)
            setattr(owner, attribute, value)
        return call(network, values[:inputs])


def _convert_inputs(graph: GraphProto, spec: BehaviorSpec) -> None:
    """Gives inputs whose type could not be traced their type on the wire, and converts them first thing."""
    from onnx import helper  # noqa: PLC0415 - see export_graph

    for index, observation in enumerate(spec.observations):
        if observation.dtype.name not in _TRACED_AS:
            continue
        name, converted = f"obs_{index}", f"obs_{index}/converted"
        traced = graph.input[index].type.tensor_type.elem_type
        native = observation.dtype.newbyteorder("=")
        graph.input[index].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(native)
        for node in graph.node:
            names = [converted if used == name else used for used in node.input]
            del node.input[:]
            node.input.extend(names)
        graph.node.insert(0, helper.make_node("Cast", [name], [converted], f"/{converted}", to=traced))
