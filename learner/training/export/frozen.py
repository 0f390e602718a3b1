"""Converts exported models, as Unity loads them, into policies that actors run as opponents.

An exported model draws actions itself. The converted policy wraps it: its mean is the drawn action with a very small
standard deviation, and its logits allow only the drawn choice. So one kind of policy is enough for actors.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from rollcast.descriptions import ACTION_MASKS, OBSERVATIONS_PROPERTY, RECURRENT_IN, RECURRENT_OUT
from rollcast.enums import Distribution, ObservationKind, Squash
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.onnx_files import BadModel, check_self_contained
from rollcast.policies import PolicyDescription, describe_payload
from rollcast.specs import BehaviorSpec, ObservationSpec
from rollcast.transforms import CLIP, ActionTransform

from learner.shared.policies import StoredPolicy
from learner.shared.settings.network import MAX_WIDTH

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, ValueInfoProto

_OBSERVATION: Final = "obs_"
_CONTINUOUS, _DISCRETE = "continuous_actions", "discrete_actions"
_MOST_LIKELY: Final = "deterministic_"
"""Prefix of the outputs of an exported model that are its most likely actions."""
_INNER: Final = "model/"
"""Prefix of all names of the exported model within the converted one."""
_LOG_STD: Final = -10.0
"""Logarithm of the standard deviation around the action that the model drew."""
_OTHERS: Final = -50.0
"""Logarithm of the probability of a choice that the model did not draw."""
_ROWS: Final = 2
"""Agents of the trial run."""


class UnusableModel(Exception):  # noqa: N818 - says what the model is
    """A file is not an exported model, or not one of this behavior; the message gives the reason in one line."""


class FrozenPolicy(NamedTuple):
    """An exported model as a policy.

    Attributes:
        digest: SHA-256 of the file.
        stored: The policy, of generation and version 0.
    """

    digest: bytes
    stored: StoredPolicy


def check_model(path: Path) -> None:
    """Checks that a file is an exported model, of whatever behavior.

    Raises:
        UnusableModel: It is not.
    """
    _parse(_read(path))


def load_frozen(path: Path, spec: BehaviorSpec, behavior_index: int, *, is_deterministic: bool = False) -> FrozenPolicy:
    """Reads an exported model, converts it, and runs it once.

    Args:
        path: The file.
        spec: Observations and actions of the behavior.
        behavior_index: Number of the behavior in this run.
        is_deterministic: Whether it takes its most likely actions instead of drawn ones.

    Raises:
        UnusableModel: The file is not an exported model with these observations and actions, or does not give its most
            likely actions.
    """
    content = _read(path)
    wrapped = _Wrapped(_parse(content), spec, _MOST_LIKELY if is_deterministic else "")
    payload = wrapped.model.SerializeToString(deterministic=True)
    if len(payload) > MAX_POLICY_BYTES:
        raise UnusableModel(f"the converted policy has {len(payload)} bytes; the limit is {MAX_POLICY_BYTES}")
    wrapped.try_out(payload)
    action = spec.action
    description = PolicyDescription(
        behavior_index=behavior_index,
        behavior=spec.name,
        generation=0,
        version=0,
        architecture_hash=hashlib.sha256(payload).digest(),
        inputs=tuple(wrapped.inputs),
        outputs=tuple(wrapped.outputs),
        continuous_distribution=(Distribution.GAUSSIAN_CLIP3 if action.continuous_size else Distribution.UNSPECIFIED),
        discrete_distribution=(Distribution.CATEGORICAL if action.discrete_branches else Distribution.UNSPECIFIED),
        action_transform=(
            ActionTransform(Squash.CLIP3_DIV3, action.continuous_low, action.continuous_high)
            if action.continuous_size
            else ActionTransform()
        ),
        memory_size=wrapped.memory_size,
        memory_stride=1 if wrapped.memory_size else 0,
    )
    return FrozenPolicy(hashlib.sha256(content).digest(), StoredPolicy(describe_payload(description, payload), payload))


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_POLICY_BYTES)
    except FileNotFoundError:
        raise UnusableModel("the file does not exist") from None
    except OSError as error:
        raise UnusableModel(f"the file cannot be read: {error.strerror or error}") from None


def _parse(content: bytes) -> ModelProto:
    """Returns a model that has the outputs of an exported one.

    Raises:
        UnusableModel: It is something else.
    """
    import onnx  # noqa: PLC0415 - takes a third of a second, and few runs need it
    from google.protobuf.message import DecodeError  # noqa: PLC0415 - see above
    from onnx import numpy_helper  # noqa: PLC0415 - see above

    if not content:
        raise UnusableModel("the file is empty")
    try:
        check_self_contained(content)
        model = onnx.load_model_from_string(content)
    except BadModel as error:
        raise UnusableModel(f"the file cannot be used: {error}") from error
    except DecodeError as error:
        raise UnusableModel("the file is not an ONNX model") from error
    outputs = {port.name for port in model.graph.output}
    if not outputs & {_CONTINUOUS, _DISCRETE}:
        raise UnusableModel(
            f"the file has no output {_CONTINUOUS} or {_DISCRETE}: name a model that a run exported, such as "
            "results/<run>/<Behavior>.onnx"
        )
    for each in model.graph.initializer:
        # Layers may turn NaN into numbers, so that only the weights show it.
        if each.data_type in {onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE}:
            try:
                has_nan = bool(np.isnan(numpy_helper.to_array(each)).any())
            except ValueError as error:
                raise UnusableModel(f"the weights {each.name!r} cannot be read: {_first_line(error)}") from error
            if has_nan:
                raise UnusableModel(
                    f"the weights {each.name!r} are not numbers (NaN): the training of the model had failed"
                )
    return model


class _Wrapped:
    """An exported model with inputs and outputs of a policy; see policy.proto.

    Args:
        model: The exported model.
        spec: Observations and actions of the behavior.
        prefix: Prefix of the outputs that are its actions.

    Attributes:
        model: The policy.
        inputs, outputs: Names of its inputs and outputs, in the order of a policy's header.
        memory_size: Numbers of memory per agent.

    Raises:
        UnusableModel: The model is for other observations or actions.
    """

    def __init__(self, model: ModelProto, spec: BehaviorSpec, prefix: str = "") -> None:
        from onnx.compose import add_prefix  # noqa: PLC0415 - see `_parse`

        self._spec = spec
        self._continuous, self._discrete = f"{prefix}{_CONTINUOUS}", f"{prefix}{_DISCRETE}"
        constants = {each.name for each in model.graph.initializer}
        self._taken = {port.name: _shape(port) for port in model.graph.input if port.name not in constants}
        self._given = {port.name for port in model.graph.output}
        self._places = self._read_places(model)
        self.memory_size = self._read_memory()
        self.inputs: list[str] = []
        self.outputs: list[str] = []
        self._check_actions(model)
        try:
            self.model = add_prefix(model, _INNER)
        except Exception as error:  # a model that contradicts itself causes any exception
            raise UnusableModel(f"the model cannot be converted: {_first_line(error)}") from error
        graph = self.model.graph
        del graph.input[:], graph.output[:]
        before, self._nodes = list(graph.node), list[Any]()
        self._add_inputs()
        self._nodes += before
        self._add_outputs()
        del graph.node[:]
        graph.node.extend(self._nodes)
        del self.model.metadata_props[:], self.model.graph.value_info[:]

    def try_out(self, payload: bytes) -> None:
        """Runs the policy on observations of zeros.

        Raises:
            UnusableModel: It fails, or its outputs have other shapes or values that are not finite.
        """
        from learner.training.export.check import open_session  # noqa: PLC0415 - loads torch, which a check of files does not need

        feed: dict[str, Any] = {
            f"{_OBSERVATION}{place}": np.zeros((_ROWS, *observation.shape), observation.dtype)
            for place, observation in self._observations()
        }
        sizes = {ACTION_MASKS: self._spec.action.mask_size, RECURRENT_IN: self.memory_size}
        feed |= {name: np.ones((_ROWS, sizes[name]), np.float32) for name in self.inputs if name in sizes}
        try:
            found = open_session(payload).run(self.outputs, feed)
        except Exception as error:  # ONNX Runtime's errors have no common base class
            raise UnusableModel(f"the model cannot be run: {_first_line(error)}") from error
        action = self._spec.action
        widths = {"logits": action.mask_size, RECURRENT_OUT: self.memory_size}
        for name, values in zip(self.outputs, found, strict=True):
            wanted = (_ROWS, widths.get(name, action.continuous_size))
            if values.shape != wanted or not np.isfinite(values).all():
                raise UnusableModel(
                    f"the model's actions have the shape {values.shape} instead of {wanted}, or are not finite"
                )

    def _observations(self) -> Iterable[tuple[int, ObservationSpec]]:
        return ((place, self._spec.observations[place]) for place in self._places)

    def _read_places(self, model: ModelProto) -> Sequence[int]:
        """Returns the places in the spec of the observations that the model takes, in the order of its inputs."""
        taken = sorted(name for name in self._taken if name.startswith(_OBSERVATION))
        names = [observation.name for observation in self._spec.observations]
        told = {each.key: each.value for each in model.metadata_props}.get(OBSERVATIONS_PROPERTY)
        places: Sequence[int] = range(len(names))
        if told is not None:
            try:
                places = [names.index(name) for name in json.loads(told)]
            except (TypeError, ValueError, RecursionError):
                places = ()
        if taken != sorted(f"{_OBSERVATION}{number}" for number in range(len(places))) or list(places) != sorted(
            set(places)
        ):
            raise UnusableModel(
                f"the model takes {len(taken)} observations, but the behavior has {', '.join(names)}: it is for another behavior"
            )
        for number, place in enumerate(places):
            shape, wanted = self._taken[f"{_OBSERVATION}{number}"], self._spec.observations[place].shape
            if len(shape) != len(wanted) + 1 or any(
                axis not in {None, size} for axis, size in zip(shape[1:], wanted, strict=True)
            ):
                raise UnusableModel(
                    f"the model takes the observation {names[place]!r} with the shape {_shown(shape[1:])}, but the behavior's has "
                    f"{_shown(wanted)}: it is for another behavior"
                )
        return places

    def _read_memory(self) -> int:
        shape = self._taken.get(RECURRENT_IN)
        if shape is None:
            return 0
        size = shape[-1] if shape else None
        if len(shape) != 3 or size is None or not 1 <= size <= MAX_WIDTH or RECURRENT_OUT not in self._given:
            raise UnusableModel(
                f"the model's memory has the shape {_shown(shape)}; [batch, 1, size] is expected, with a size of at most {MAX_WIDTH}"
            )
        return size

    def _check_actions(self, model: ModelProto) -> None:
        action = self._spec.action
        wanted = {_CONTINUOUS} if action.continuous_size else set()
        wanted |= {_DISCRETE} if action.discrete_branches else set()
        given = self._given & {_CONTINUOUS, _DISCRETE}
        if given != wanted:
            raise UnusableModel(
                f"the model's outputs are {', '.join(sorted(given))}, but the behavior needs {', '.join(sorted(wanted))}: it is "
                "for another behavior"
            )
        bounds = np.asarray((*action.continuous_low, *action.continuous_high))
        if not np.isfinite(bounds).all():
            raise UnusableModel(
                "the behavior has action axes without bounds, onto which the model's [-1, 1] cannot be mapped"
            )
        needed = {name for name in (self._continuous, self._discrete) if name.removeprefix(_MOST_LIKELY) in wanted}
        if not needed <= self._given:
            raise UnusableModel(
                f"the model has no output {', '.join(sorted(needed - self._given))}: it can only draw its actions"
            )
        shape = self._taken.get(ACTION_MASKS)
        if shape is not None and (len(shape) != 2 or shape[1] not in {None, action.mask_size}):
            raise UnusableModel(
                f"the model takes masks of the shape {_shown(shape[1:])}, but the behavior has {action.mask_size} choices"
            )
        sizes = _discrete_sizes(model)
        if sizes is not None and sizes != list(action.discrete_branches):
            raise UnusableModel(
                f"the model's branches have {sizes} choices, but the behavior's have {list(action.discrete_branches)}: it is for another "
                "behavior"
            )

    def _add_inputs(self) -> None:
        from onnx import TensorProto, helper  # noqa: PLC0415 - see `_parse`

        for number, (place, observation) in enumerate(self._observations()):
            name, inner = f"{_OBSERVATION}{place}", f"{_INNER}{_OBSERVATION}{number}"
            self._add_input(name, helper.np_dtype_to_tensor_dtype(observation.dtype), observation.shape)
            is_bytes = observation.kind is ObservationKind.IMAGE and observation.dtype.kind in "iu"
            if is_bytes and observation.scale:
                self._add_node("Cast", [name], f"{name}/floats", to=TensorProto.FLOAT)
                self._add_constant(f"{name}/scale", np.float32(observation.scale))
                self._add_node("Div", [f"{name}/floats", f"{name}/scale"], inner)
            else:
                self._add_node("Cast", [name], inner, to=TensorProto.FLOAT)
        if ACTION_MASKS in self._taken and self._spec.action.discrete_branches:
            self._add_input(ACTION_MASKS, TensorProto.FLOAT, (self._spec.action.mask_size,))
            self._add_node("Identity", [ACTION_MASKS], f"{_INNER}{ACTION_MASKS}")
        if self.memory_size:
            self._add_input(RECURRENT_IN, TensorProto.FLOAT, (self.memory_size,))
            self._add_constant("memory_in_shape", np.asarray([-1, 1, self.memory_size], np.int64))
            self._add_node("Reshape", [RECURRENT_IN, "memory_in_shape"], f"{_INNER}{RECURRENT_IN}")

    def _add_outputs(self) -> None:
        action = self._spec.action
        if action.continuous_size:
            drawn = f"{_INNER}{self._continuous}"
            for name, value in (("clip", CLIP), ("zero", 0.0), ("log_std_value", _LOG_STD)):
                self._add_constant(name, np.float32(value))
            self._add_node("Mul", [drawn, "clip"], "mean")
            self._add_node("Mul", [drawn, "zero"], "zeros")
            self._add_node("Add", ["zeros", "log_std_value"], "log_std")
            self._add_output("mean", action.continuous_size)
            self._add_output("log_std", action.continuous_size)
        if action.discrete_branches:
            self._add_choices()
            self._add_output("logits", action.mask_size)
        if self.memory_size:
            self._add_constant("memory_out_shape", np.asarray([-1, self.memory_size], np.int64))
            self._add_node("Reshape", [f"{_INNER}{RECURRENT_OUT}", "memory_out_shape"], RECURRENT_OUT)
            self._add_output(RECURRENT_OUT, self.memory_size)

    def _add_choices(self) -> None:
        """Adds logits ``[B, sum of branches]`` from the drawn choices ``[B, branches]``."""
        from onnx import TensorProto  # noqa: PLC0415 - see `_parse`

        self._add_node("Cast", [f"{_INNER}{self._discrete}"], "choices", to=TensorProto.INT64)
        self._add_constant("log_probabilities", np.asarray([_OTHERS, 0.0], np.float32))
        parts = []
        for branch, size in enumerate(self._spec.action.discrete_branches):
            part = f"branch_{branch}"
            self._add_constant(f"{part}/place", np.int64(branch))
            self._add_constant(f"{part}/size", np.int64(size))
            self._add_node("Gather", ["choices", f"{part}/place"], f"{part}/choice", axis=1)
            self._add_node("OneHot", [f"{part}/choice", f"{part}/size", "log_probabilities"], part)
            parts.append(part)
        self._add_node("Concat", parts, "logits", axis=1)

    def _add_input(self, name: str, dtype: int, shape: Sequence[int]) -> None:
        from onnx import helper  # noqa: PLC0415 - see `_parse`

        self.model.graph.input.append(helper.make_tensor_value_info(name, dtype, ["batch", *shape]))
        self.inputs.append(name)

    def _add_output(self, name: str, size: int) -> None:
        from onnx import TensorProto, helper  # noqa: PLC0415 - see `_parse`

        self.model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size]))
        self.outputs.append(name)

    def _add_constant(self, name: str, value: Any) -> None:
        from onnx import numpy_helper  # noqa: PLC0415 - see `_parse`

        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    def _add_node(self, kind: str, inputs: Sequence[str], output: str, **attributes: Any) -> None:
        from onnx import helper  # noqa: PLC0415 - see `_parse`

        node: NodeProto = helper.make_node(kind, list(inputs), [output], **attributes)
        self._nodes.append(node)


def _shape(port: ValueInfoProto) -> tuple[int | None, ...]:
    """Returns the declared shape; None for an axis of any size."""
    return tuple(axis.dim_value if axis.HasField("dim_value") else None for axis in port.type.tensor_type.shape.dim)


def _discrete_sizes(model: ModelProto) -> list[int] | None:
    """Returns the numbers of choices that an exported model tells; None if it does not tell them as a constant."""
    from onnx import numpy_helper  # noqa: PLC0415 - see `_parse`

    name = "discrete_action_output_shape"
    constants = {each.name: each for each in model.graph.initializer}
    for node in reversed(model.graph.node):  # producers come before their consumers
        if name in node.output and node.op_type == "Identity" and node.input:
            name = node.input[0]
        elif name in node.output and node.op_type == "Constant" and node.attribute:
            constants[name] = node.attribute[0].t
    try:
        return [int(size) for size in numpy_helper.to_array(constants[name]).ravel()[:64]]
    except (KeyError, ValueError, TypeError, OverflowError):
        return None


def _shown(shape: Sequence[int | None]) -> str:
    return f"[{', '.join('any' if axis is None else str(axis) for axis in shape)}]"


def _first_line(error: Exception) -> str:
    text = " ".join(str(error).split())
    return (text if text.isprintable() else ascii(text))[:300] or type(error).__name__
