"""Stop 10 of a step's path: converts parameters to the ONNX file that actors run.

The graph is exported once per network. A version is that file with other weight bytes: a copy, not an export.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.text import in_one_line
from torch import Tensor, nn

from learner.shared.exits import ExitCode, UserError
from learner.training.export.check import PolicyCheckFailed, check_export
from learner.training.export.describe import Progress
from learner.training.export.graph import export_graph, tensors_of
from learner.training.networks.policy import PolicyNetwork

_OURS = frozenset({"learner", "torch"})
"""Packages whose parts of networks can be exported."""


def _advice(network: nn.Module) -> str:
    """Returns what the code of users in a network must do, to be exported; empty if there is none."""
    kinds = {type(part) for part in network.modules()}
    names = sorted(
        f"{each.__module__}:{each.__qualname__}" for each in kinds if each.__module__.partition(".")[0] not in _OURS
    )
    if not names:
        return ""
    return (
        f"; of the run file's own code it has {', '.join(names)}, which may use only operations that ONNX has, with weights that "
        "are parameters or buffers, and must compute each row alike: no branch on values, no number of rows as a constant"
    )


class PolicyExporter:
    """Creates policy files from the states of one network.

    Args:
        network: The acting network, on any device.
        description_template: Result of `learner.training.export.describe.describe`; hash and numbers are added here.

    Raises:
        PolicyCheckFailed: The network cannot be expressed in ONNX.
    """

    def __init__(self, network: PolicyNetwork, description_template: PolicyDescription) -> None:
        self._network = network
        try:
            template = export_graph(network).SerializeToString(deterministic=True)
        except Exception as error:  # the tracer's errors have no common base class
            behavior = network.spec.name
            said = f"the policy network of {behavior!r} cannot be exported: {in_one_line(error)}{_advice(network)}"
            raise PolicyCheckFailed(said) from error
        self._form = {name: (value.dtype, value.shape) for name, value in tensors_of(network).items()}
        self._splicer = Splicer(template, self._form.keys())
        digest = architecture_hash(self._form, template)
        self.description = dataclasses.replace(description_template, architecture_hash=digest)

    def verify(self) -> None:
        """Compares a random state in ONNX Runtime with torch, at several batch sizes.

        Raises:
            PolicyCheckFailed: The outputs differ; the message names the output and the difference.
        """
        try:
            check_export(self._network, self.render)
        except PolicyCheckFailed as error:
            raise PolicyCheckFailed(error.message + _advice(self._network)) from error

    def render(self, state: Mapping[str, Tensor]) -> bytes:
        """Returns the policy file of a state.

        Args:
            state: The network's ``state_dict``, on any device.

        Raises:
            KeyError: An entry is missing.
            ValueError: An entry has another type or shape than in the network.
            UserError: A weight is not finite. Such a policy is never published.
        """
        weights = self._on_host(state)
        for name, value in weights.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                behavior = self.description.behavior
                message = f"the policy of {behavior!r} has values that are not finite in {name}: lower learning_rate"
                raise UserError(ExitCode.TRAINER_FAILED, message)
        return self._splicer.render({name: value.reshape(-1).view(np.uint8) for name, value in weights.items()})

    def render_version(self, state: Mapping[str, Tensor], progress: Progress) -> tuple[PolicyDescription, bytes]:
        """Returns the complete header and the policy file of a version; errors as in `render`."""
        payload = self.render(state)
        numbered = dataclasses.replace(self.description, **dataclasses.asdict(progress))
        return describe_payload(numbered, payload), payload

    def _on_host(self, state: Mapping[str, Tensor]) -> dict[str, NDArray[np.generic]]:
        """Copies the state to the CPU, with one transfer for each type of numbers on another device."""
        tensors = {name: state[name].detach() for name in self._form}
        for name, tensor in tensors.items():
            dtype, shape = self._form[name]
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(
                    f"{name} is {tensor.dtype} of shape {list(tensor.shape)}; the exported network needs {dtype} of "
                    f"shape {list(shape)}"
                )
        remote = [name for name, tensor in tensors.items() if tensor.device.type != "cpu"]
        for dtype in {tensors[name].dtype for name in remote}:
            names = [name for name in remote if tensors[name].dtype == dtype]
            together = torch.cat([tensors[name].reshape(-1) for name in names]).cpu()
            tensors.update(zip(names, torch.split(together, [tensors[name].numel() for name in names]), strict=True))
        return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}


def architecture_hash(form: Mapping[str, tuple[torch.dtype, torch.Size]], template: bytes) -> bytes:
    """Computes the SHA-256 over everything that is the same in all versions.

    Args:
        form: Type and shape of every state entry, including those that the graph does not use.
        template: The serialized graph with weights of zero.
    """
    entries = [(name, str(dtype), list(shape)) for name, (dtype, shape) in form.items()]
    return hashlib.sha256(json.dumps(entries).encode() + b"\0" + template).digest()


_GRAPH, _INITIALIZER, _NAME, _RAW_DATA = 7, 5, 8, 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class Slot:
    """The location of the bytes of one initializer."""

    offset: int
    size_bytes: int


class Splicer:
    """Replaces the weights of a serialized model.

    Args:
        model: A serialized ``ModelProto`` whose initializers hold raw data.
        names: Names of the initializers that change; the graph need not use all of them.
    """

    def __init__(self, model: bytes, names: Collection[str]) -> None:
        self.slots = {name: slot for name, slot in find_slots(model).items() if name in names}
        self._buffer = np.frombuffer(bytearray(model), np.uint8)  # reused: only the slots change

    def render(self, weights: Mapping[str, NDArray[np.uint8]]) -> bytes:
        """Returns the model with other weights.

        Args:
            weights: Bytes of each initializer, ``[size_bytes]``, little-endian and in C order.

        Raises:
            KeyError: An initializer is missing.
            ValueError: An initializer has another size.
        """
        for name, slot in self.slots.items():
            data = weights[name]
            if data.size != slot.size_bytes:
                raise ValueError(f"{name} has {data.size} bytes; the exported graph has {slot.size_bytes}")
            self._buffer[slot.offset : slot.offset + slot.size_bytes] = data
        return self._buffer.tobytes()


def find_slots(model: bytes) -> dict[str, Slot]:
    """Finds the raw data of every initializer of a serialized model, by name."""
    slots = {}
    for begin, end in _fields(model, 0, len(model), _GRAPH):
        for tensor_begin, tensor_end in _fields(model, begin, end, _INITIALIZER):
            (name_begin, name_end), *_ = _fields(model, tensor_begin, tensor_end, _NAME)
            for data_begin, data_end in _fields(model, tensor_begin, tensor_end, _RAW_DATA):
                slots[model[name_begin:name_end].decode("utf-8")] = Slot(data_begin, data_end - data_begin)
    return slots


def _fields(data: bytes, begin: int, end: int, wanted: int) -> Iterator[tuple[int, int]]:
    """Yields the start and end of each length-delimited field with a given number in one message."""
    at = begin
    while at < end:
        key, at = _varint(data, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == _BYTES:
            size, at = _varint(data, at)
            if number == wanted:
                yield at, at + size
            at += size
        elif wire_type == _VARINT:
            _, at = _varint(data, at)
        elif wire_type in (_FIXED32, _FIXED64):
            at += 4 if wire_type == _FIXED32 else 8
        else:
            raise ValueError(f"field {number} at byte {at} has the wire type {wire_type}; this is not an ONNX model")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Reads a varint (seven bits a byte, lowest first); returns it and its end."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
