"""Tests the records of the engine, parameter and statistics channels."""

import struct
from uuid import UUID

import pytest
from rollcast.enums import StatAggregation
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.unity.channels.framing import BadSideChannel, Reader, pack, string, unpack
from actor_client.unity.channels.records import StatRecord, engine_records, parameter_records, read_stat
from tests.actor_client.unity.channels.recorded import RESET_HEX, STAT_HEX


def recorded_assignment() -> policy_pb2.Assignment:
    """Returns what the recorded run was about."""
    interval = policy_pb2.UniformSampler
    return policy_pb2.Assignment(
        parameter_order=["mass", "scale", "g", "mr"],
        environment_parameters={
            "g": policy_pb2.Sampler(gaussian=policy_pb2.GaussianSampler(mean=1, st_dev=2), seed=43),
            "mass": policy_pb2.Sampler(constant=1.5, seed=7),
            "mr": policy_pb2.Sampler(
                multi_range=policy_pb2.MultiRangeSampler(intervals=[interval(low=1, high=2), interval(low=4, high=5)]),
                seed=44,
            ),
            "scale": policy_pb2.Sampler(uniform=interval(low=0.75, high=3), seed=42),
        },
    )


RECORDED_ENGINE = session_pb2.EngineSettings(
    width=84, height=84, quality_level=5, time_scale=20, target_frame_rate=-1, capture_frame_rate=60
)


def test_a_reset_carries_the_recorded_bytes() -> None:
    """Parameters in the run file's order and the five engine settings are the bytes that ML-Agents sent."""
    records = parameter_records(recorded_assignment()) + engine_records(RECORDED_ENGINE)
    assert pack(records).hex() == RESET_HEX


def test_parameters_without_a_place_in_the_order_follow_by_name() -> None:
    """Every parameter is sent once, in a fixed order, even if the learner lists no order."""
    assignment = recorded_assignment()
    del assignment.parameter_order[:]
    assignment.parameter_order.extend(["mr", "mr", "gone"])
    names = [Reader(payload).string() for _, payload in parameter_records(assignment)]
    assert names == ["mr", "g", "mass", "scale"]


def test_samplers_without_a_seed_get_one_from_the_run() -> None:
    """A sampler without a seed gets the run's seed plus its index; a configured seed is kept."""
    assignment = recorded_assignment()
    assignment.environment_parameters["scale"].seed = -1
    assignment.environment_parameters["mr"].seed = -1
    seeds = {}
    for _, payload in parameter_records(assignment, run_seed=100):
        reader = Reader(payload)
        name, kind = reader.string(), reader.int32()
        if kind == 1:
            seeds[name] = reader.int32()
    assert seeds == {"scale": 100, "g": 43, "mr": 101}


def test_a_sampler_of_a_kind_that_is_not_known_is_left_out() -> None:
    """Samplers of unknown kinds are left out."""
    assignment = policy_pb2.Assignment(
        environment_parameters={"a": policy_pb2.Sampler(), "b": policy_pb2.Sampler(constant=2)}
    )
    assert [Reader(payload).string() for _, payload in parameter_records(assignment)] == ["b"]


def test_seeds_and_engine_settings_beyond_int32_are_sent_all_the_same() -> None:
    """Large seeds lose their upper bits, and large engine settings are clipped to int32."""
    assignment = policy_pb2.Assignment(
        environment_parameters={
            "a": policy_pb2.Sampler(uniform=policy_pb2.UniformSampler(low=0, high=1), seed=2**40 + 5)
        }
    )
    reader = Reader(parameter_records(assignment)[0][1])
    assert (reader.string(), reader.int32(), reader.int32()) == ("a", 1, 5)
    (_, resolution), *_ = engine_records(session_pb2.EngineSettings(width=2**32 - 1, height=1))
    assert struct.unpack("<3i", resolution) == (0, 2**31 - 1, 1)


def test_a_recorded_statistic_is_read() -> None:
    """A recorded statistic is decoded as the stock trainer does."""
    ((channel, payload),) = unpack(bytes.fromhex(STAT_HEX))
    assert channel == UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")
    assert read_stat(payload) == StatRecord("Env/Stat", 1.25, StatAggregation.AVERAGE)


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (string("a") + struct.pack("<fi", 1.0, 4), "aggregation 4"),
        (string("a") + struct.pack("<fi", 1.0, -1), "aggregation -1"),
        (string("a") + struct.pack("<fi", float("nan"), 0), "'a' is nan"),
        (string("a") + struct.pack("<fi", float("inf"), 0), "'a' is inf"),
        (string("") + struct.pack("<fi", 1.0, 0), "0 characters"),
        (string("k" * 257) + struct.pack("<fi", 1.0, 0), "257 characters"),
        (string("two\nlines") + struct.pack("<fi", 1.0, 0), "printable"),
        (string("a") + b"\0", "past the end"),
        (b"\xff\xff\xff\x7f", "past the end"),
        (b"", "past the end"),
    ],
)
def test_a_statistic_that_no_learner_would_take_is_refused(payload: bytes, said: str) -> None:
    """Invalid keys, values and aggregations of statistics are refused."""
    with pytest.raises(BadSideChannel, match=said) as caught:
        read_stat(payload)
    assert "\n" not in str(caught.value)
