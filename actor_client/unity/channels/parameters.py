"""The channel of environment parameters: constants, and samplers from which the player itself draws."""

from collections.abc import Iterator
from typing import Final
from uuid import UUID

from rollcast.v1 import policy_pb2

from actor_client.unity.channels.framing import MAX_INT32, float32, int32, string

PARAMETERS_CHANNEL: Final = UUID("534c891e-810f-11ea-a9d0-822485860400")

_FLOAT: Final = int32(0)
_SAMPLER: Final = int32(1)
_UNIFORM: Final = int32(0)
_GAUSSIAN: Final = int32(1)
_MULTI_RANGE: Final = int32(2)


def parameter_records(assignment: policy_pb2.Assignment, run_seed: int = 0) -> list[tuple[UUID, bytes]]:
    """Returns one record for each environment parameter, in the order of the run file.

    Args:
        assignment: What the learner asks for.
        run_seed: Samplers without a seed of their own (a negative one) get this one plus their place among those.
    """
    records = []
    offset = 0
    for name in _ordered(assignment):
        sampler = assignment.environment_parameters[name]
        seed = sampler.seed
        if seed < 0:
            seed = run_seed + offset
            offset += 1
        payload = _payload(sampler, seed & MAX_INT32)  # as many bits as the wire has, and never negative
        if payload is not None:
            records.append((PARAMETERS_CHANNEL, string(name) + payload))
    return records


def _ordered(assignment: policy_pb2.Assignment) -> Iterator[str]:
    """Yields all names once: those that have a place in the order first, then the others by name."""
    parameters = assignment.environment_parameters
    listed = dict.fromkeys(name for name in assignment.parameter_order if name in parameters)
    yield from listed
    yield from sorted(name for name in parameters if name not in listed)


def _payload(sampler: policy_pb2.Sampler, seed: int) -> bytes | None:
    """Returns what follows the name; None for a kind of sampler that a newer learner may know."""
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
