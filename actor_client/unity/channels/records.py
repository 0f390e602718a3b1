"""Records of ML-Agents' own channels: engine settings, environment parameters, and statistics of players."""

import math
from collections.abc import Iterator
from typing import Final, NamedTuple
from uuid import UUID

from rollcast.enums import StatAggregation
from rollcast.limits import MAX_STAT_KEY_LENGTH
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.unity.channels.framing import MAX_INT32, BadSideChannel, Reader, float32, int32, string

ENGINE_CHANNEL: Final = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")

_SCREEN_RESOLUTION: Final = int32(0)
_QUALITY_LEVEL: Final = int32(1)
_TIME_SCALE: Final = int32(2)
_TARGET_FRAME_RATE: Final = int32(3)
_CAPTURE_FRAME_RATE: Final = int32(4)

PARAMETERS_CHANNEL: Final = UUID("534c891e-810f-11ea-a9d0-822485860400")

_FLOAT: Final = int32(0)
_SAMPLER: Final = int32(1)
_UNIFORM: Final = int32(0)
_GAUSSIAN: Final = int32(1)
_MULTI_RANGE: Final = int32(2)

STATS_CHANNEL: Final = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

_AGGREGATIONS: Final = (
    StatAggregation.AVERAGE,
    StatAggregation.MOST_RECENT,
    StatAggregation.SUM,
    StatAggregation.HISTOGRAM,
)
"""Aggregations by their number on the wire."""


def engine_records(engine: session_pb2.EngineSettings) -> list[tuple[UUID, bytes]]:
    """Returns the records that set resolution, quality, time scale and both frame rates, in this order."""
    payloads = (
        _SCREEN_RESOLUTION + int32(engine.width) + int32(engine.height),
        _QUALITY_LEVEL + int32(engine.quality_level),
        _TIME_SCALE + float32(engine.time_scale),
        _TARGET_FRAME_RATE + int32(engine.target_frame_rate),
        _CAPTURE_FRAME_RATE + int32(engine.capture_frame_rate),
    )
    return [(ENGINE_CHANNEL, payload) for payload in payloads]


def parameter_records(assignment: policy_pb2.Assignment, run_seed: int = 0) -> list[tuple[UUID, bytes]]:
    """Returns one record for each environment parameter, in the order of the run file.

    Args:
        assignment: The learner's assignment.
        run_seed: A sampler with a negative seed gets this seed plus its index among such samplers.
    """
    records = []
    offset = 0
    for name in _ordered(assignment):
        sampler = assignment.environment_parameters[name]
        seed = sampler.seed
        if seed < 0:
            seed = run_seed + offset
            offset += 1
        payload = _payload(sampler, seed & MAX_INT32)  # as many bits as the wire has, never negative
        if payload is not None:
            records.append((PARAMETERS_CHANNEL, string(name) + payload))
    return records


def _ordered(assignment: policy_pb2.Assignment) -> Iterator[str]:
    """Yields each name once: first the names with a place in the order, then the others alphabetically."""
    parameters = assignment.environment_parameters
    listed = dict.fromkeys(name for name in assignment.parameter_order if name in parameters)
    yield from listed
    yield from sorted(name for name in parameters if name not in listed)


def _payload(sampler: policy_pb2.Sampler, seed: int) -> bytes | None:
    """Returns the bytes after the name; None for an unknown kind of sampler, perhaps of a newer learner."""
    kind = sampler.WhichOneof("sampler")
    if kind == "constant":
        return _FLOAT + float32(sampler.constant)
    head = _SAMPLER + int32(seed)
    if kind == "uniform":
        return head + _UNIFORM + float32(sampler.uniform.low) + float32(sampler.uniform.high)
    if kind == "gaussian":
        return head + _GAUSSIAN + float32(sampler.gaussian.mean) + float32(sampler.gaussian.st_dev)
    if kind == "multi_range":
        intervals = sampler.multi_range.intervals
        ends = b"".join(float32(each.low) + float32(each.high) for each in intervals)
        return head + _MULTI_RANGE + int32(2 * len(intervals)) + ends
    return None


class StatRecord(NamedTuple):
    """One value of one statistic."""

    key: str
    value: float
    aggregation: StatAggregation


def read_stat(payload: bytes) -> StatRecord:
    """Reads the payload of a statistics record.

    Raises:
        BadSideChannel: The payload is malformed, or a learner would refuse the key or the value.
    """
    reader = Reader(payload)
    key, value, number = reader.string(), reader.float32(), reader.int32()
    if not 1 <= len(key) <= MAX_STAT_KEY_LENGTH or not key.isprintable():
        raise BadSideChannel(
            f"statistic {key[:80]!r} has {len(key)} characters; 1 to {MAX_STAT_KEY_LENGTH} printable characters "
            "are allowed"
        )
    if not 0 <= number < len(_AGGREGATIONS):
        raise BadSideChannel(f"statistic {key!r} has aggregation {number}; 0 to {len(_AGGREGATIONS) - 1} are known")
    if not math.isfinite(value):
        raise BadSideChannel(f"statistic {key!r} is {value}")
    return StatRecord(key, value, _AGGREGATIONS[number])
