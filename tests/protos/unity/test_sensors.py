"""Tests that an observation of many agents becomes one array."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.specs import BehaviorSpec
from rollcast.unity.communicator_objects import observation_pb2
from rollcast.unity.forms import action_spec, observation_spec, wire_layout
from rollcast.unity.sensors import MAX_BATCH_BYTES, BadSensorData, SensorReader, sensor_readers

from tests.actor_client.unity.agents import CHANNELS_FIRST, CHANNELS_LAST, brain, floats, packed, pixels, png


def reader(first: observation_pb2.ObservationProto, version: str = "3.0.0") -> SensorReader:
    """Returns the reader of a sensor with this first observation."""
    spec = BehaviorSpec("A", (observation_spec(first, "Sensor", version),), action_spec(brain(1)))
    return sensor_readers(spec, [first], [wire_layout(first, version)])[0]


def test_floats_that_were_not_packed() -> None:
    """Unpacked floats and unknown fields are read."""
    first = floats([1.0, 2.0])
    unpacked = b"\x0d" + np.float32(3.0).tobytes() + b"\x0d" + np.float32(4.0).tobytes()
    stranger = b"\x0a\x08" + np.array([5.0, 6.0], "<f4").tobytes() + b"\x78\x07"
    rows = []
    for data in (unpacked, stranger):
        row = floats([], shape=[2])
        row.float_data.ParseFromString(data)
        rows.append(row)
    found, _ = reader(first).read([first, *rows])
    assert found.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]


def test_float_pictures_of_either_order() -> None:
    """[H, W, C] is transposed and [C, H, W] is kept."""
    values = np.random.default_rng(3).random((2, 6, 5, 3), np.float32)
    last = [floats(picture, CHANNELS_LAST) for picture in values]
    first = [floats(picture.transpose(2, 0, 1), CHANNELS_FIRST) for picture in values]
    for rows in (last, first):
        found, _ = reader(rows[0]).read(rows)
        assert np.array_equal(found, values.transpose(0, 3, 1, 2))
        assert found.flags.c_contiguous


@pytest.mark.parametrize(("shape", "properties"), [((3, 6, 5), CHANNELS_FIRST), ((6, 5, 3), CHANNELS_LAST)])
def test_png_of_either_order(shape: Sequence[int], properties: Sequence[int]) -> None:
    """PNG images of either order become bytes with channels first."""
    images = [pixels(6, 5, seed) for seed in range(3)]
    rows = [packed(png(image), shape, [0, 1, 2], properties) for image in images]
    found, bad = reader(rows[0]).read(rows)
    assert bad is None
    assert found.dtype == np.uint8
    assert np.array_equal(found, np.stack(images).transpose(0, 3, 1, 2))


@pytest.mark.parametrize("compressed_first", [False, True])
def test_compression_may_change(compressed_first: bool) -> None:
    """Compression may change between messages and agents; the spec's type stays."""
    image = pixels(6, 5)
    small, large = packed(png(image), (3, 6, 5), [0, 1, 2]), floats(image.transpose(2, 0, 1) / 255.0, CHANNELS_FIRST)
    sensor = reader(small if compressed_first else large)
    expected = image.transpose(2, 0, 1).astype(np.float64) / (1.0 if compressed_first else 255.0)
    for rows in ([small, small], [large, large], [small, large], [large, small]):
        found, bad = sensor.read(rows)
        assert bad is None
        assert found.dtype == sensor.spec.dtype
        assert np.allclose(found, np.stack([expected, expected]), atol=1e-6)


def test_rows_that_are_not_finite() -> None:
    """NaN and infinity become 0 and their rows are reported, also in images."""
    bad = np.ones((3, 6, 5))
    bad[1, 2, 3] = np.nan
    small, large = packed(png(pixels(6, 5)), (3, 6, 5), [0, 1, 2]), floats(bad, CHANNELS_FIRST)
    for rows in ([small, large], [large, large]):
        found, told = reader(rows[0]).read(rows)
        assert told is not None
        assert told.tolist() == [row is large for row in rows]
        assert found[1, 1, 2, 3] == 0
        assert found[1, 0, 0, 0] == (255 if rows[0] is small else 1)


@pytest.mark.parametrize(
    ("first", "bad", "words"),
    [
        (floats([1.0, 2.0]), floats([1.0, 2.0, 3.0]), r"has shape \[3\]; the behavior began with \[2\]"),
        (floats([1.0, 2.0]), floats([[1.0, 2.0]]), r"has shape \[1, 2\]"),
        (floats([1.0, 2.0]), floats([1.0], shape=[2]), r"has 1 values; its shape \[2\] needs 2"),
        (floats([1.0, 2.0]), floats([], shape=[2]), "has 0 values"),
        (floats([1.0, 2.0]), packed(png(pixels(1, 2)), [2]), "only images can be compressed"),
        (packed(png(pixels(6, 5)), [3, 6, 5]), packed(b"x", [3, 6, 5]), "none begins"),
        (packed(png(pixels(6, 5)), [3, 6, 5]), packed(png(pixels(7, 5)), [3, 6, 5]), "7 x 5 pixels"),
        (
            packed(png(pixels(6, 5)), [3, 6, 5]),
            observation_pb2.ObservationProto(shape=[3, 6, 5], compression_type=7),  # type: ignore[arg-type]
            "has compression 7",
        ),
    ],
)
def test_what_cannot_be_read(
    first: observation_pb2.ObservationProto, bad: observation_pb2.ObservationProto, words: str
) -> None:
    """The error has the cause and the row."""
    with pytest.raises(BadSensorData, match=words) as caught:
        reader(first).read([first, bad])
    assert caught.value.row == 1


def test_what_is_unpacked_is_bounded() -> None:
    """Large announced observations in a small message allocate no memory."""
    side = 2000
    one = packed(b"", (3, side, side))
    with pytest.raises(
        BadSensorData, match=f"of 100 agents takes {3 * side * side} bytes each; at most {MAX_BATCH_BYTES}"
    ):
        reader(one).read([one] * 100)


OBSERVATIONS = st.builds(
    observation_pb2.ObservationProto,
    shape=st.just([2]) | st.just([1, 1, 2]) | st.lists(st.integers(-1, 3), max_size=3),
    compression_type=st.integers(0, 2),
    float_data=st.builds(observation_pb2.ObservationProto.FloatData, data=st.lists(st.floats(width=32), max_size=3)),
    compressed_channel_mapping=st.lists(st.integers(-2, 2), max_size=4),
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from([floats([1.0, 2.0]), packed(b"", (1, 1, 2))]), st.lists(OBSERVATIONS, max_size=4))
def test_anything_is_an_array_or_one_line(
    first: observation_pb2.ObservationProto, rows: list[observation_pb2.ObservationProto]
) -> None:
    """Any observation becomes a finite array of the spec or an error about one row."""
    sensor, line = reader(first), ""
    try:
        found, _ = sensor.read(rows)
        assert found.shape == (len(rows), *sensor.spec.shape)
        assert found.dtype == sensor.spec.dtype
        assert np.isfinite(found).all()
    except BadSensorData as error:
        line = str(error)
        assert 0 <= error.row < len(rows)  # noqa: PT017 - most inputs are errors
    assert line.isprintable()
