"""Tests that arrays survive the wire and invalid ones are refused before allocation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from rollcast.enums import Dtype, Encoding
from rollcast.errors import MalformedChunk
from rollcast.tensors import decode, encode
from rollcast.v1 import tensor_pb2

KINDS = ["?", "u1", "i1", "<i2", "<i4", "<i8", "<f2", "<f4", "<f8", "<u2", "<u4", "<u8"]
MAX = 1 << 20


def tensor(**changes: Any) -> tensor_pb2.Tensor:
    """Returns a valid float32[2, 2] with changes."""
    values: dict[str, Any] = {"dtype": Dtype.FLOAT32, "shape": (2, 2), "encoding": Encoding.RAW, "data": bytes(16)}
    return tensor_pb2.Tensor(**(values | changes))


@settings(deadline=None, max_examples=150)
@given(
    array=hnp.arrays(st.sampled_from(KINDS), hnp.array_shapes(min_dims=0, max_dims=8, min_side=0, max_side=3)),
    compress=st.booleans(),
)
def test_round_trip(array: NDArray[Any], compress: bool) -> None:
    """Type, shape and bits survive a round trip with and without compression."""
    sent = encode(array, compress=compress).SerializeToString()
    back = decode(tensor_pb2.Tensor.FromString(sent), max_bytes=MAX)
    assert array.dtype == back.dtype
    assert array.shape == back.shape
    assert array.tobytes() == back.tobytes()


@pytest.mark.parametrize("make", [lambda a: a.T, lambda a: a[::2, ::-1], lambda a: a.astype(">f4"), np.asfortranarray])
def test_any_layout_and_byte_order_is_sent_alike(make: Any) -> None:
    """Views, transposed and big-endian arrays arrive as their values."""
    array = make(np.arange(24, dtype=np.float32).reshape(4, 6))
    back = decode(encode(array), max_bytes=MAX)
    np.testing.assert_array_equal(array, back)
    assert back.dtype == np.dtype("<f4")


def test_compression_is_kept_only_where_it_pays() -> None:
    """Compression is used only if it saves bytes."""
    noise = np.random.default_rng(0).integers(0, 256, 4096).astype(np.uint8)
    assert encode(np.zeros(4096, np.uint8), compress=True).encoding == Encoding.ZSTD.value
    assert encode(noise, compress=True).encoding == Encoding.RAW.value
    assert encode(np.zeros(4096, np.uint8)).encoding == Encoding.RAW.value


@pytest.mark.parametrize("array", [np.zeros(2, np.complex64), np.asarray(["a"]), np.asarray([object()])])
def test_types_without_wire_form_are_refused_at_the_sender(array: NDArray[Any]) -> None:
    """Complex numbers, text, objects and nine axes are refused at the sender."""
    with pytest.raises(TypeError, match="cannot be sent"):
        encode(array)
    with pytest.raises(ValueError, match="9 axes"):
        encode(np.zeros((1,) * 9, np.float32))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"dtype": 0}, "element type 0"),
        ({"dtype": 77}, "element type 77"),
        ({"dtype": Dtype.BFLOAT16, "data": bytes(8)}, "element type 8"),
        ({"encoding": 0}, "encoding 0"),
        ({"encoding": 9}, "encoding 9"),
        ({"data": bytes(15)}, "15 bytes of data, but type and shape need 16"),
        ({"data": bytes(17)}, "17 bytes of data"),
        ({"data": b""}, "0 bytes of data"),
        ({"shape": (1,) * 9, "data": bytes(4)}, "9 axes"),
        ({"shape": (1 << 19,), "data": b""}, "needs 2097152 bytes"),
        ({"shape": (1 << 63, 1 << 63, 1 << 63), "data": b""}, "at most 1048576"),
        ({"shape": (1 << 32, 1 << 32), "data": b""}, "at most 1048576"),
        ({"shape": (0, 1 << 63), "data": b""}, "out of bounds"),
        ({"shape": (0, 1 << 40, 1 << 40), "data": b""}, "out of bounds"),
        ({"shape": (), "data": b""}, "0 bytes of data"),
        ({"dtype": Dtype.BOOL, "shape": (2,), "data": b"\x01\x02"}, "a bool is 2"),
    ],
)
def test_what_is_not_an_array_is_refused(changes: dict[str, Any], message: str) -> None:
    """Unknown types and encodings, wrong lengths and overflowing shapes are refused."""
    with pytest.raises(MalformedChunk, match=message):
        decode(tensor(**changes), max_bytes=MAX)


def frame(data: bytes, **options: Any) -> bytes:
    """Returns a zstd frame."""
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (frame(bytes(16), write_content_size=False), "states no size"),
        (frame(bytes(1 << 19)), "states 524288 bytes"),
        (frame(bytes(15)), "states 15 bytes"),
        (frame(bytes(16)) + b"x", "not exactly one complete"),
        (frame(bytes(16)) + frame(bytes(16)), "not exactly one complete"),
        (frame(bytes(range(16)))[:-4], "not exactly one complete"),
        (b"not a frame at all", "not exactly one complete"),
        (b"", "not exactly one complete"),
    ],
)
def test_only_one_whole_frame_of_the_right_size_is_unpacked(data: bytes, message: str) -> None:
    """A frame without a size, of another size, truncated or followed by data is refused."""
    with pytest.raises(MalformedChunk, match=message):
        decode(tensor(encoding=Encoding.ZSTD, data=data), max_bytes=MAX)


def test_a_frame_that_lies_about_its_size_is_refused() -> None:
    """A frame whose content exceeds its stated size is refused."""
    honest = frame(bytes(range(200)) * 1, level=1)
    stated = zstandard.get_frame_parameters(honest).content_size
    assert stated == 200
    lying = honest.replace(bytes([200]), bytes([16]), 1)
    with pytest.raises(MalformedChunk):
        decode(tensor(encoding=Encoding.ZSTD, data=lying), max_bytes=MAX)
