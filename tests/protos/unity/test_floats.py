"""Tests the floats of uncompressed observations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollcast.unity.communicator_objects import observation_pb2
from rollcast.unity.floats import FloatReader, varint

from tests.actor_client.unity.agents import floats


@given(st.integers(0, 2**31 - 1))
def test_lengths_are_encoded_as_protobuf_does(number: int) -> None:
    """Lengths are encoded as protobuf does."""
    message = observation_pb2.ObservationProto(dimension_properties=[number])
    assert message.SerializeToString()[2:] == varint(number)


@pytest.mark.parametrize("size", [1, 4, 1000, 1023, 1024, 2000])
@pytest.mark.parametrize("agents", [1, 2, 9])
def test_bit_by_bit(size: int, agents: int) -> None:
    """Observations of any length and number of agents arrive bit by bit in writable arrays."""
    values = np.random.default_rng(size).normal(size=(agents, size)).astype(np.float32)
    values[0, 0] = np.nan
    found = FloatReader(size).read([floats(row) for row in values])
    assert not isinstance(found, int)
    assert found.tobytes() == values.tobytes()
    assert found.flags.writeable
    assert found.flags.c_contiguous


@pytest.mark.parametrize("size", [4, 2000])
def test_no_agents(size: int) -> None:
    """Without agents there are no rows."""
    found = FloatReader(size).read([])
    assert not isinstance(found, int)
    assert found.shape == (0, size)


@pytest.mark.parametrize("size", [4, 2000])
@pytest.mark.parametrize("wrong", [0, 1, 5, 3000])
def test_another_number_of_floats(size: int, wrong: int) -> None:
    """The error names the first row with another number of floats."""
    good, bad = floats(np.ones(size)), floats(np.ones(wrong))
    assert FloatReader(size).read([good, good, bad, good, bad]) == 2
