"""Stop 10 of a step's way: parameters to the ONNX file that actors run.

The graph is exported once for a network. A version is that file with other bytes in it: a copy, not an export.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.policies import PolicyDescription, describe_payload
from torch import Tensor

from learner.common.exits import ExitCode, UserError
from learner.networks.policy import PolicyNetwork
from learner.publish.check import PolicyCheckFailed, check_export
from learner.publish.graph import export_graph, tensors_of
from learner.publish.splice import Splicer


class PolicyExporter:
    """Makes policy files of one network's states.

    Args:
        network: what acts; on any device.
        description_template: `learner.publish.describe.describe`; hash and numbers are filled in here.

    Raises:
        PolicyCheckFailed: the network cannot be expressed in ONNX.
    """

    def __init__(self, network: PolicyNetwork, description_template: PolicyDescription) -> None:
        self._network = network
        try:
            template = export_graph(network).SerializeToString(deterministic=True)
        except Exception as error:  # the tracer's errors have no common base
            behavior = network.spec.name
            raise PolicyCheckFailed(f"the policy network of {behavior!r} cannot be exported: {error}") from error
        self._form = {name: (value.dtype, value.shape) for name, value in tensors_of(network).items()}
        self._splicer = Splicer(template, self._form.keys())
        digest = architecture_hash(self._form, template)
        self.description = dataclasses.replace(description_template, architecture_hash=digest)

    def verify(self) -> None:
        """Compares a random state in ONNX Runtime with torch, at several batch sizes.

        Raises:
            PolicyCheckFailed: they differ; the message names the output and the difference.
        """
        check_export(self._network, self.render)

    def render(self, state: Mapping[str, Tensor]) -> bytes:
        """Makes the policy file of a state.

        Args:
            state: the network's ``state_dict``, on any device.

        Raises:
            KeyError: an entry is missing.
            ValueError: an entry has another type or shape than the network had.
            UserError: a weight is not finite. Such a policy is never published.
        """
        weights = self._on_host(state)
        for name, value in weights.items():
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                behavior = self.description.behavior
                message = f"the policy of {behavior!r} has numbers that are not finite in {name}: lower learning_rate"
                raise UserError(ExitCode.TRAINER_FAILED, message)
        return self._splicer.render({name: value.reshape(-1).view(np.uint8) for name, value in weights.items()})

    def render_version(
        self, state: Mapping[str, Tensor], *, version: int, optimizer_steps: int, env_steps_trained: int
    ) -> tuple[PolicyDescription, bytes]:
        """Makes the policy file of a version and its complete header; errors as in `render`."""
        payload = self.render(state)
        numbered = dataclasses.replace(
            self.description, version=version, optimizer_steps=optimizer_steps, env_steps_trained=env_steps_trained
        )
        return describe_payload(numbered, payload), payload

    def _on_host(self, state: Mapping[str, Tensor]) -> dict[str, NDArray[np.generic]]:
        """Takes the state to the CPU, with one transfer for each type of numbers on another device."""
        tensors = {name: state[name].detach() for name in self._form}
        for name, tensor in tensors.items():
            dtype, shape = self._form[name]
            if tensor.dtype != dtype or tensor.shape != shape:
                raise ValueError(
                    f"{name} is {tensor.dtype} of shape {list(tensor.shape)}; the exported network has {dtype} of "
                    f"shape {list(shape)}"
                )
        remote = [name for name, tensor in tensors.items() if tensor.device.type != "cpu"]
        for dtype in {tensors[name].dtype for name in remote}:
            names = [name for name in remote if tensors[name].dtype == dtype]
            together = torch.cat([tensors[name].reshape(-1) for name in names]).cpu()
            parts = torch.split(together, [tensors[name].numel() for name in names])
            tensors.update(zip(names, parts, strict=True))
        return {name: np.ascontiguousarray(tensor.numpy()) for name, tensor in tensors.items()}


def architecture_hash(form: Mapping[str, tuple[torch.dtype, torch.Size]], template: bytes) -> bytes:
    """Computes the SHA-256 over what stays the same from version to version.

    Args:
        form: type and shape of every state entry, those that the graph does not use included.
        template: the serialized graph with weights of zero.
    """
    entries = [(name, str(dtype), list(shape)) for name, (dtype, shape) in form.items()]
    return hashlib.sha256(json.dumps(entries).encode() + b"\0" + template).digest()
