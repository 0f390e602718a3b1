"""Checks once at start that the exported policy computes the same as the network, with all weights randomized.

A weight folded into a constant, a frozen normalizer, or a batch size traced as a number shows only in the second
version, and then as a policy that learns nothing. Every parameter and buffer therefore gets other values before the
comparison.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rollcast.descriptions import ACTION_MASKS, RECURRENT_IN
from rollcast.enums import ObservationKind
from rollcast.specs import BehaviorSpec, ObservationSpec
from torch import Tensor

from learner.shared.exits import ExitCode, UserError
from learner.training.export.describe import output_names
from learner.training.export.graph import call, tensors_of
from learner.training.networks.observations import is_entities
from learner.training.networks.policy import PolicyNetwork

RELATIVE_TOLERANCE = 1e-4
ABSOLUTE_TOLERANCE = 1e-5
BATCH_SIZES = (1, 7)

State = Mapping[str, Tensor]


class PolicyCheckFailed(UserError):  # noqa: N818 - after its exit code
    """The exported policy differs from the network; nothing is published."""

    def __init__(self, message: str) -> None:
        super().__init__(ExitCode.POLICY_CHECK_FAILED, message)


def check_export(network: PolicyNetwork, render: Callable[[State], bytes]) -> None:
    """Compares the rendered policy in ONNX Runtime with the network in torch, for a random state and random inputs.

    Args:
        network: Network on any device; not changed.
        render: Returns the policy file of a state.

    Raises:
        PolicyCheckFailed: An output differs, or the file cannot be run; the message names the output and the
            difference.
    """
    network = copy.deepcopy(network).cpu().eval()
    random = np.random.default_rng(0)
    state = random_state(tensors_of(network), {name for name, _ in network.named_buffers()}, random)
    network.load_state_dict(state)
    names = output_names(network.spec, network.memory_size)
    try:
        session = open_session(render(state))
        for batch_size in BATCH_SIZES:
            feed = random_inputs(network.spec, network.memory_size, batch_size, random, network.reads)
            with torch.no_grad():
                expected = call(network, [torch.from_numpy(value) for value in feed.values()])
            for name, ours, theirs in zip(names, expected, session.run(list(names), feed), strict=True):
                _compare(name, batch_size, ours.detach().numpy(), theirs)
    except UserError:
        raise
    except Exception as error:  # ONNX Runtime's errors have no common base class
        raise PolicyCheckFailed(f"the exported policy of {network.spec.name!r} cannot be run: {error}") from error


def open_session(payload: bytes) -> Any:
    """Opens a policy as an actor does: one thread that does not spin."""
    import onnxruntime  # noqa: PLC0415 - takes a quarter of a second to import

    runtime: Any = onnxruntime  # untyped
    runtime.disable_telemetry_events()  # on Windows; elsewhere, `rollcast` sets the variable that disables it
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3  # errors only
    for pool in ("intra", "inter"):
        options.add_session_config_entry(f"session.{pool}_op.allow_spinning", "0")
    return runtime.InferenceSession(payload, options, providers=["CPUExecutionProvider"])


def random_state(state: State, buffers: set[str], random: np.random.Generator) -> dict[str, Tensor]:
    """Changes every parameter and every numeric buffer; whole numbers stay, because they may be positions.

    Nonnegative buffers stay nonnegative, and none becomes zero (a standard deviation must not). Parameters shrink
    overall: otherwise numbers would grow in a deep tower until rounding alone exceeds the tolerance.
    """
    changed = {}
    for name, value in state.items():
        if not value.is_floating_point():
            changed[name] = value.clone()
            continue
        if name in buffers:
            factor, shift = random.uniform(0.5, 1.5, value.shape), random.uniform(0.1, 0.5, value.shape)
        else:
            fan_in = value.numel() / value.shape[0] if value.dim() > 1 else 1.0
            factor = random.uniform(0.3, 0.9, value.shape)
            shift = random.standard_normal(value.shape) * 0.2 / math.sqrt(fan_in)
        changed[name] = value * torch.as_tensor(factor, dtype=value.dtype) + torch.as_tensor(shift, dtype=value.dtype)
    return changed


def random_inputs(
    spec: BehaviorSpec,
    memory_size: int,
    batch_size: int,
    random: np.random.Generator,
    reads: Sequence[int] | None = None,
) -> dict[str, NDArray[Any]]:
    """Returns observations of wire types, masks that allow something in each branch, and memory, by input name.

    Args:
        spec: Observations and actions of the behavior.
        memory_size: Number of values in a memory; 0 without memory.
        batch_size: Number of rows.
        random: Draws the values.
        reads: Indices of the observations that the policy reads; None for all.
    """
    places = range(len(spec.observations)) if reads is None else reads
    values = {f"obs_{index}": _random_observation(spec.observations[index], batch_size, random) for index in places}
    if spec.action.discrete_branches:
        values[ACTION_MASKS] = _random_masks(spec.action.discrete_branches, batch_size, random)
    if memory_size:
        values[RECURRENT_IN] = random.standard_normal((batch_size, memory_size)).astype(np.float32)
    return values


def _random_observation(spec: ObservationSpec, batch_size: int, random: np.random.Generator) -> NDArray[Any]:
    shape = (batch_size, *spec.shape)
    if spec.kind is ObservationKind.CATEGORICAL:
        return random.integers(0, np.asarray(spec.categories), shape).astype(spec.dtype)
    if spec.dtype.kind == "f":
        values = random.standard_normal(shape) * (spec.scale or 1.0)
        return (_with_padding(values, random) if is_entities(spec) else values).astype(spec.dtype)
    if spec.dtype.kind == "b":
        return random.integers(0, 2, shape).astype(spec.dtype)
    # After scaling, values are close to 1: far from 1, rounding alone can exceed the tolerance.
    highest = max(3, int(min(spec.scale, np.iinfo(spec.dtype).max)))
    return random.integers(0 if spec.dtype.kind == "u" else -highest, highest + 1, shape).astype(spec.dtype)


def _with_padding(lists: NDArray[Any], random: np.random.Generator) -> NDArray[Any]:
    """Removes entities from lists ``[B, max, size]``: random ones, and all in a last row that is not the only one."""
    there = random.integers(0, 2, lists.shape[:2])
    if len(there) > 1:
        there[-1] = 0
    else:
        there[:, 0] = 1
    kept: NDArray[Any] = lists * there[..., None]
    return kept


def _random_masks(branches: tuple[int, ...], batch_size: int, random: np.random.Generator) -> NDArray[np.float32]:
    masks = []
    for choices in branches:
        mask = random.integers(0, 2, (batch_size, choices))
        mask[np.arange(batch_size), random.integers(0, choices, batch_size)] = 1
        masks.append(mask)
    return np.concatenate(masks, axis=1).astype(np.float32)


def _compare(name: str, batch_size: int, expected: NDArray[Any], found: NDArray[Any]) -> None:
    where = f"the exported policy differs from the network in the output {name!r} at batch size {batch_size}"
    if found.shape != expected.shape:
        raise PolicyCheckFailed(f"{where}: its shape is {list(found.shape)} instead of {list(expected.shape)}")
    if np.allclose(found, expected, rtol=RELATIVE_TOLERANCE, atol=ABSOLUTE_TOLERANCE):
        return
    worst = float(np.abs(found.astype(np.float64) - expected.astype(np.float64)).max())
    raise PolicyCheckFailed(
        f"{where}: by up to {worst:.3g}, more than {RELATIVE_TOLERANCE:g} relative and {ABSOLUTE_TOLERANCE:g} "
        "absolute. Actors would not run the trained policy, so nothing is published; please report the network "
        "settings"
    )
