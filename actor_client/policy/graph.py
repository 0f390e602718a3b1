"""A policy's graph in ONNX Runtime, opened with checks and run without allocations."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import numpy as np
import onnxruntime as _onnxruntime
from numpy.typing import NDArray
from rollcast.onnx_files import BadModel, check_self_contained

_NUMPY_TYPES: Final = {
    "tensor(bool)": np.bool_,
    "tensor(uint8)": np.uint8,
    "tensor(int8)": np.int8,
    "tensor(uint16)": np.uint16,
    "tensor(int16)": np.int16,
    "tensor(uint32)": np.uint32,
    "tensor(int32)": np.int32,
    "tensor(int64)": np.int64,
    "tensor(float16)": np.float16,
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
}
_ORT: Final[Any] = _onnxruntime  # ONNX Runtime has no types.
_ORT.disable_telemetry_events()  # on Windows; elsewhere, `rollcast` sets the variable that disables it
_FATAL_ONLY: Final = 4
_KEPT_SIZES: Final = 32
"""Most batch sizes whose bindings are kept; each binding takes a few kilobytes, and 15 microseconds to make."""


_graphs: "WeakSet[Graph]" = WeakSet()


class _Bound(NamedTuple):
    """The first rows of all buffers, bound for one number of agents."""

    inputs: dict[str, NDArray[Any]]
    outputs: dict[str, NDArray[np.float32]]
    binding: Any


class BadGraph(Exception):  # noqa: N818 - names what is bad, like the classes of rollcast.errors
    """The model cannot be opened, or its inputs and outputs are not those that were announced."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output that a graph must have.

    Attributes:
        name: Its name.
        shape: Shape without the batch axis.
        dtype: Element type; None = any type, values are cast (action masks).
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any] | None


class Graph:
    """One opened model.

    Buffers for inputs and outputs are allocated once and bound. With one agent and two layers of 64 units a call takes
    3.3 microseconds, compared with 4.9 for a call with new arrays. Bindings for different numbers of agents share the
    buffers, so changing the number is cheap.

    Args:
        model: A serialized ONNX model.
        inputs: All required inputs.
        outputs: All required outputs; float32.

    Raises:
        BadGraph: See the class.
    """

    def __init__(self, model: bytes, inputs: Sequence[Port], outputs: Sequence[Port]) -> None:
        try:
            self._session = open_session(model)
        except BadModel as error:
            raise BadGraph(str(error)) from error
        except Exception as error:
            # ONNX Runtime's exceptions have no common base class.
            raise BadGraph(f"ONNX Runtime cannot open it: {_first_line(error)}") from error
        self._inputs, self._outputs = tuple(inputs), tuple(outputs)
        self._input_types = _check_ports("input", self._session.get_inputs(), self._inputs)
        _check_ports("output", self._session.get_outputs(), self._outputs)
        self._begun = self._ended = 0
        _graphs.add(self)
        self._agents = 0
        self._rows = 0
        self._buffers: dict[str, NDArray[Any]] = {}
        self._bound: dict[int, _Bound] = {}
        self._binding: Any = None
        self.inputs: dict[str, NDArray[Any]] = {}
        self.outputs: dict[str, NDArray[np.float32]] = {}

    def resize(self, agents: int) -> bool:
        """Makes `inputs` and `outputs` fit B agents; each array is [B, *shape] and holds zeros or old values.

        Args:
            agents: B.

        Returns:
            False if they already had this size; they are then unchanged.
        """
        if agents == self._agents:
            return False
        bound = self._bound.pop(agents, None)
        if bound is None:
            if agents > self._rows:
                self._grow(agents)
            elif len(self._bound) == _KEPT_SIZES:
                del self._bound[next(iter(self._bound))]
            bound = self._bind(agents)
        self._bound[agents] = bound  # keeps the most recently used size last
        self.inputs, self.outputs, self._binding = bound
        self._agents = agents
        return True

    def _grow(self, agents: int) -> None:
        """Allocates buffers for at least B agents, and at least twice the former size, so that growth is cheap."""
        self._bound.clear()
        self._rows = max(agents, 2 * self._rows)
        types = self._input_types | dict.fromkeys((port.name for port in self._outputs), np.dtype(np.float32))
        self._buffers = {
            port.name: np.zeros((self._rows, *port.shape), types[port.name]) for port in (*self._inputs, *self._outputs)
        }

    def _bind(self, agents: int) -> _Bound:
        inputs = {port.name: self._buffers[port.name][:agents] for port in self._inputs}
        outputs = {port.name: self._buffers[port.name][:agents] for port in self._outputs}
        binding = self._session.io_binding()
        for name, buffer in inputs.items():
            binding.bind_input(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        for name, buffer in outputs.items():
            binding.bind_output(name, "cpu", 0, buffer.dtype, buffer.shape, buffer.ctypes.data)
        return _Bound(inputs, outputs, binding)

    def run(self) -> None:
        """Computes `outputs` from `inputs`, in place.

        Raises:
            BadGraph: The graph fails, or an output has another shape than announced.
        """
        self._begun += 1
        try:
            self._session.run_with_iobinding(self._binding)
        except Exception as error:
            raise BadGraph(f"ONNX Runtime cannot run it: {_first_line(error)}") from error
        finally:
            self._ended = self._begun

    @property
    def present_run(self) -> int:
        """Number of the present run; 0 between two runs."""
        return self._begun if self._begun != self._ended else 0


def present_runs() -> set[tuple[int, int]]:
    """Returns what is run now by any thread: a number of the graph, and one of the run; the same run is equal at two looks."""
    return {(id(graph), graph.present_run) for graph in list(_graphs) if graph.present_run}


def open_session(model: bytes) -> Any:
    """Opens a serialized model in ONNX Runtime, on one thread.

    Raises:
        BadModel: It is not a model, or it refers to external data.
        Exception: The error of ONNX Runtime.
    """
    check_self_contained(model)
    return _ORT.InferenceSession(model, _options(), providers=["CPUExecutionProvider"])


def _options() -> Any:
    """Returns options for one thread: small networks lose time with more, and waiting threads would occupy a core."""
    options = _ORT.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.execution_mode = _ORT.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _FATAL_ONLY
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    # Bytes in ONNX Runtime's own flatbuffer format would bypass the check above.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    return options


def _check_ports(what: str, found: Sequence[Any], wanted: Sequence[Port]) -> dict[str, np.dtype[Any]]:
    """Compares a graph's ports with the required ones, and returns the type of each."""
    by_name = {node.name: node for node in found}
    names = [port.name for port in wanted]
    if sorted(by_name) != sorted(names):
        raise BadGraph(f"its {what}s are {sorted(by_name)}; {sorted(names)} are expected")
    types = {}
    for port in wanted:
        node = by_name[port.name]
        dtype = _NUMPY_TYPES.get(node.type)
        if dtype is None or (port.dtype is not None and np.dtype(dtype) != port.dtype):
            raise BadGraph(f"{what} {port.name} is {node.type}; {port.dtype or 'a tensor of numbers'} is expected")
        if not _fits(node.shape, port.shape):
            raise BadGraph(f"{what} {port.name} has shape {node.shape}; [agents, {_listed(port.shape)}] is expected")
        types[port.name] = np.dtype(dtype)
    return types


def _fits(found: Sequence[int | str | None] | None, wanted: tuple[int, ...]) -> bool:
    """Returns whether declared axes allow any number of rows of the wanted shape; a named axis may have any size."""
    if not found:
        return True  # The rank is unknown; the first run checks it.
    batch, *axes = found
    return (
        not isinstance(batch, int)
        and len(axes) == len(wanted)
        and all(not isinstance(axis, int) or axis == size for axis, size in zip(axes, wanted, strict=True))
    )


def _listed(shape: tuple[int, ...]) -> str:
    return ", ".join(map(str, shape))


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300] or type(error).__name__
