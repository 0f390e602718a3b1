"""The enums of the .proto files as IntEnums, so that code does not depend on generated names.

A test compares each with its protobuf enum, member by member.
"""

from enum import IntEnum
from typing import TypeVar

E = TypeVar("E", bound=IntEnum)


def member(kind: type[E], number: int) -> E | None:
    """Returns the member with this number; None for an unknown number, which protobuf passes on."""
    try:
        return kind(number)
    except ValueError:
        return None


class Dtype(IntEnum):
    """Element types; see tensor.proto."""

    UNSPECIFIED = 0
    BOOL = 1
    UINT8 = 2
    INT8 = 3
    INT16 = 4
    INT32 = 5
    INT64 = 6
    FLOAT16 = 7
    BFLOAT16 = 8
    FLOAT32 = 9
    FLOAT64 = 10
    UINT16 = 11
    UINT32 = 12
    UINT64 = 13


class Encoding(IntEnum):
    """Compression of bytes; see tensor.proto."""

    UNSPECIFIED = 0
    RAW = 1
    ZSTD = 2


class ObservationKind(IntEnum):
    """Meaning of an observation; see spec.proto."""

    UNSPECIFIED = 0
    VECTOR = 1
    IMAGE = 2
    CATEGORICAL = 3
    ENTITIES = 4


class DimensionProperty(IntEnum):
    """Meaning of an axis; see spec.proto."""

    UNSPECIFIED = 0
    NONE = 1
    TRANSLATIONAL_EQUIVARIANCE = 2
    VARIABLE_SIZE = 3


class ObservationRole(IntEnum):
    """Use of an observation; see spec.proto."""

    UNSPECIFIED = 0
    DEFAULT = 1
    GOAL = 2


class ImageLayout(IntEnum):
    """Order of image axes; UNSPECIFIED for anything but images."""

    UNSPECIFIED = 0
    HWC = 1
    CHW = 2


class Squash(IntEnum):
    """First function applied to a raw draw; see spec.proto."""

    UNSPECIFIED = 0
    NONE = 1
    CLIP3_DIV3 = 2
    TANH = 3


class HoldReason(IntEnum):
    """Reason why actors wait; see trajectory.proto."""

    UNSPECIFIED = 0
    UPDATING = 1
    PAUSED = 2
    BEHIND = 3
    DRAINING = 4
    LOCKSTEP = 5


class ColumnRole(IntEnum):
    """Meaning of a column's rows; see trajectory.proto."""

    UNSPECIFIED = 0
    STEP = 1
    SEGMENT = 2
    FINAL = 3
    MEMORY = 4
    EPISODE = 5
    STAT = 6


class SegmentEnd(IntEnum):
    """Kind of a segment's end; see trajectory.proto."""

    UNSPECIFIED = 0
    CUT = 1
    TERMINATED = 2
    TRUNCATED = 3


class GroupEnd(IntEnum):
    """State of the group at a segment's end; see trajectory.proto."""

    UNSPECIFIED = 0
    CONTINUES = 1
    TERMINATED = 2
    TRUNCATED = 3


class Purpose(IntEnum):
    """Purpose of a segment or episode; see trajectory.proto."""

    UNSPECIFIED = 0
    TRAIN = 1
    EVALUATE = 2
    DEMO = 3


class ActionSource(IntEnum):
    """Origin of an action; see trajectory.proto."""

    UNSPECIFIED = 0
    POLICY = 1
    RANDOM = 2
    HUMAN = 3
    SCRIPT = 4


class StatAggregation(IntEnum):
    """Aggregation of statistics records; see trajectory.proto."""

    UNSPECIFIED = 0
    AVERAGE = 1
    MOST_RECENT = 2
    SUM = 3
    HISTOGRAM = 4


class PolicyFormat(IntEnum):
    """Format of a policy's bytes; see policy.proto."""

    UNSPECIFIED = 0
    ONNX = 1
    SAFETENSORS = 2


class Distribution(IntEnum):
    """Distribution of actions; UNSPECIFIED if the policy has no such part."""

    UNSPECIFIED = 0
    GAUSSIAN_CLIP3 = 1
    TANH_GAUSSIAN = 2
    CATEGORICAL = 3


class AssignmentRole(IntEnum):
    """Task of an actor for a behavior id; see policy.proto."""

    UNSPECIFIED = 0
    LEARN = 1
    OPPONENT = 2
    IDLE = 3


class ResetMode(IntEnum):
    """Time of the reset of environments; see policy.proto."""

    UNSPECIFIED = 0
    NONE = 1
    EPISODE_END = 2
    NOW = 3


class CloseReason(IntEnum):
    """Reason why an actor leaves; see session.proto."""

    UNSPECIFIED = 0
    DONE = 1
    ENVIRONMENT_FAILED = 2
    ERROR = 3
