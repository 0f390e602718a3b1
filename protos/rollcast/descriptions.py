"""Describes a policy and how to act with it: the header that precedes its bytes."""

from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from rollcast import limits
from rollcast.enums import Distribution, Dtype, Encoding, PolicyFormat, Squash, member
from rollcast.errors import BadSpec, PolicyCorrupt
from rollcast.transforms import ActionTransform
from rollcast.v1 import policy_pb2

E = TypeVar("E", Distribution, Dtype, Encoding, PolicyFormat)

MODEL_PROPERTY: Final = "rollcast.model"
"""Property of an exported model that describes it: a JSON object; see learner/training/export/README.md."""
OBSERVATIONS_PROPERTY: Final = "rollcast.observations"
"""Property of an exported model that takes only some observations: a JSON list of their names, in the order of inputs."""

ACTION_MASKS: Final = "action_masks"
"""Graph input of the choices that agents may take, [B, sum of branches]."""
DISCRETE_LOG_PROBS: Final = "discrete_log_probs"
"""Value inside of exported models: log-probabilities of all choices, [B, sum of branches]. Their outputs are those of ML-Agents alone;
programs that choose themselves declare this value an output (`declared_output`)."""
RECURRENT_IN: Final = "recurrent_in"
"""Graph input of agents' memories, [B, memory_size]; [B, 1, memory_size] in exported models."""
RECURRENT_OUT: Final = "recurrent_out"
"""Graph output of agents' memories after the step, of the same shape."""

_WEIGHT_TYPES = frozenset({Dtype.FLOAT16, Dtype.BFLOAT16, Dtype.FLOAT32, Dtype.FLOAT64, Dtype.INT8, Dtype.UINT8})


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDescription:
    """A policy and how to act with it; the same fields as PolicyHeader in policy.proto.

    Attributes:
        behavior_index: The learner's number of the behavior.
        behavior: The behavior's name, without a team.
        generation: Number of the learner's start.
        version: Number of completed updates; 0 = untrained.
        optimizer_steps: Optimizer steps so far.
        env_steps_trained: Environment steps trained on so far.
        architecture_hash: SHA-256 over the form of the network.
        inputs: Graph inputs: obs_i of each observation i that the policy reads, action_masks, recurrent_in.
        outputs: Graph outputs, out of mean, log_std, logits, recurrent_out.
        continuous_distribution: UNSPECIFIED without continuous actions.
        discrete_distribution: UNSPECIFIED without discrete actions.
        action_transform: Converts draws to environment actions.
        memory_size: Numbers of memory per agent; 0 = none.
        memory_stride: Rows between two records of memory.
        dtype: Type of the weights.
        format: Format of the payload.
        encoding: Compression of the frames.
        size_bytes: Bytes after unpacking.
        encoded_bytes: Bytes of all frames.
        sha256: Digest of the payload after unpacking.
        deterministic: Act with the mode of the distribution.
        uniform: Act uniformly within the bounds and over the allowed choices, whatever the outputs of the graph.
    """

    behavior_index: int
    behavior: str
    generation: int
    version: int
    optimizer_steps: int = 0
    env_steps_trained: int = 0
    architecture_hash: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    continuous_distribution: Distribution = Distribution.UNSPECIFIED
    discrete_distribution: Distribution = Distribution.UNSPECIFIED
    action_transform: ActionTransform = field(default_factory=ActionTransform)
    memory_size: int = 0
    memory_stride: int = 0
    dtype: Dtype = Dtype.FLOAT32
    format: PolicyFormat = PolicyFormat.ONNX
    encoding: Encoding = Encoding.RAW
    size_bytes: int = 0
    encoded_bytes: int = 0
    sha256: bytes = b""
    deterministic: bool = False
    uniform: bool = False

    def to_message(self) -> policy_pb2.PolicyHeader:
        """Encodes the description as a message."""
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in fields(self)}
        return policy_pb2.PolicyHeader(**values | {"action_transform": self.action_transform.to_message()})

    @classmethod
    def from_message(cls, message: policy_pb2.PolicyHeader) -> "PolicyDescription":
        """Decodes and checks a message.

        Raises:
            PolicyCorrupt: The header contradicts itself or policy.proto.
        """
        values: dict[str, Any] = {each.name: getattr(message, each.name) for each in fields(cls)}
        values |= {
            "inputs": tuple(message.inputs),
            "outputs": tuple(message.outputs),
            "continuous_distribution": _known(Distribution, message.continuous_distribution, "continuous distribution"),
            "discrete_distribution": _known(Distribution, message.discrete_distribution, "discrete distribution"),
            "action_transform": _transform(message),
            "dtype": _known(Dtype, message.dtype, "weight type"),
            "format": _known(PolicyFormat, message.format, "format"),
            "encoding": _known(Encoding, message.encoding, "encoding"),
        }
        description = cls(**values)
        _check(description)
        return description


def _known(kind: type[E], number: int, what: str) -> E:
    value = member(kind, number)
    if value is None:
        raise PolicyCorrupt(f"policy header: {what} {number} is unknown; this actor may be too old for the learner")
    return value


def _transform(message: policy_pb2.PolicyHeader) -> ActionTransform:
    """Returns the transform; the default if a policy without continuous actions has none."""
    if not message.HasField("action_transform") and message.continuous_distribution == Distribution.UNSPECIFIED.value:
        return ActionTransform()
    try:
        return ActionTransform.from_message(message.action_transform)
    except BadSpec as error:
        raise PolicyCorrupt(f"policy header: {error.message}") from None


def _check(description: PolicyDescription) -> None:
    fault = limits.behavior_name_fault(description.behavior)
    if fault is not None:
        raise PolicyCorrupt(f"policy header: behavior name {description.behavior[:80]!r} {fault}")
    if description.format is PolicyFormat.UNSPECIFIED or description.encoding is Encoding.UNSPECIFIED:
        raise PolicyCorrupt("policy header: format or encoding is missing")
    if description.dtype not in _WEIGHT_TYPES:
        raise PolicyCorrupt(f"policy header: weights cannot have the type {description.dtype.name}")
    for what, digest in (("architecture_hash", description.architecture_hash), ("sha256", description.sha256)):
        if len(digest) != limits.SHA256_BYTES:
            raise PolicyCorrupt(f"policy header: {what} has {len(digest)} bytes; SHA-256 has {limits.SHA256_BYTES}")
    _check_distributions(description)
    if bool(description.memory_size) != bool(description.memory_stride):
        raise PolicyCorrupt(
            f"policy header: memory_size {description.memory_size} and memory_stride {description.memory_stride}; "
            "both must be 0, or neither"
        )
    if description.format is PolicyFormat.ONNX:
        _check_graph(description)


def _check_distributions(description: PolicyDescription) -> None:
    continuous, discrete = description.continuous_distribution, description.discrete_distribution
    if continuous is Distribution.UNSPECIFIED and discrete is Distribution.UNSPECIFIED:
        raise PolicyCorrupt("policy header: it has neither a continuous nor a discrete distribution")
    if continuous is Distribution.CATEGORICAL or discrete not in (Distribution.UNSPECIFIED, Distribution.CATEGORICAL):
        raise PolicyCorrupt(
            f"policy header: distribution {continuous.name} for continuous or {discrete.name} for discrete actions is "
            "not possible"
        )
    if continuous is Distribution.TANH_GAUSSIAN and description.action_transform.squash is not Squash.TANH:
        raise PolicyCorrupt("policy header: a squashed Gaussian needs the squash TANH")
    unbounded = continuous is not Distribution.UNSPECIFIED and description.action_transform.squash is Squash.NONE
    if description.uniform and unbounded:
        raise PolicyCorrupt("policy header: uniform actions need a squash; NONE has no bounds")


def _check_graph(description: PolicyDescription) -> None:
    """Checks names and order of graph inputs and outputs, which follow from the rest of the header."""
    observations = [name for name in description.inputs if name.startswith("obs_")]
    others = [name for name in description.inputs if not name.startswith("obs_")]
    possible = [f"obs_{index}" for index in range(limits.MAX_OBSERVATIONS)]
    if not observations or observations != [name for name in possible if name in observations]:
        raise PolicyCorrupt(
            f"policy header: inputs {list(description.inputs)} do not begin with obs_0, obs_1, ..., of which some may be "
            "left out"
        )
    recurrent = [RECURRENT_IN] if description.memory_size else []
    masked = description.discrete_distribution is not Distribution.UNSPECIFIED
    allowed = [[ACTION_MASKS, *recurrent], recurrent] if masked else [recurrent]
    if list(description.inputs) != observations + others or others not in allowed:
        raise PolicyCorrupt(f"policy header: inputs {list(description.inputs)} do not fit the distributions and memory")
    outputs: set[str] = set()
    if description.continuous_distribution is not Distribution.UNSPECIFIED:
        outputs |= {"mean", "log_std"}
    if masked:
        outputs.add("logits")
    if recurrent:
        outputs.add(RECURRENT_OUT)
    if set(description.outputs) != outputs or len(description.outputs) != len(outputs):
        raise PolicyCorrupt(f"policy header: outputs {list(description.outputs)}, expected {sorted(outputs)}")


def declared_output(name: str) -> bytes:
    """Returns the bytes that, appended to a model, declare a value of its graph to be an output.

    Protobuf merges messages that follow one another, so these are a model with a graph (field 7) that has only an output
    (field 12) with a name (field 1). The actor needs no package of ONNX for it.

    Args:
        name: The value; at most 100 characters.
    """
    value = b"\x0a" + bytes([len(name)]) + name.encode("ascii")
    output = b"\x62" + bytes([len(value)]) + value
    return b"\x3a" + bytes([len(output)]) + output
