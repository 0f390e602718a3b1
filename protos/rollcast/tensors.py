"""Converts between numpy arrays and Tensor messages. Memory is allocated only after the sizes have been checked."""

import math
import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import zstandard
from numpy.typing import NDArray

from rollcast import limits
from rollcast.enums import Dtype, Encoding
from rollcast.errors import MalformedChunk
from rollcast.v1 import tensor_pb2

COMPRESSION_LEVEL: Final = 1  # about 0.9 GB/s; higher levels gain little on experience and cost the actor steps
COMPRESSION_PAYS_BELOW: Final = 0.8

# BFLOAT16 is missing: numpy has no such type, and no column may use it.
_NUMPY: Final[Mapping[int, np.dtype[Any]]] = MappingProxyType(
    {
        Dtype.BOOL: np.dtype(np.bool_),
        Dtype.UINT8: np.dtype(np.uint8),
        Dtype.INT8: np.dtype(np.int8),
        Dtype.INT16: np.dtype("<i2"),
        Dtype.INT32: np.dtype("<i4"),
        Dtype.INT64: np.dtype("<i8"),
        Dtype.FLOAT16: np.dtype("<f2"),
        Dtype.FLOAT32: np.dtype("<f4"),
        Dtype.FLOAT64: np.dtype("<f8"),
        Dtype.UINT16: np.dtype("<u2"),
        Dtype.UINT32: np.dtype("<u4"),
        Dtype.UINT64: np.dtype("<u8"),
    }
)
_WIRE: Final[Mapping[np.dtype[Any], Dtype]] = MappingProxyType({kind: Dtype(wire) for wire, kind in _NUMPY.items()})


def dtype_to_wire(dtype: np.dtype[Any]) -> Dtype:
    """Returns the wire type of a numpy type.

    Raises:
        TypeError: The type has no wire form.
    """
    wire = _WIRE.get(dtype.newbyteorder("<"))
    if wire is None:
        raise TypeError(f"{dtype} cannot be sent; use one of {', '.join(str(kind) for kind in _WIRE)}")
    return wire


def dtype_from_wire(wire: int) -> np.dtype[Any] | None:
    """Returns the numpy type of a wire type (little-endian); None if unknown, unspecified or BFLOAT16."""
    return _NUMPY.get(wire)


def encode(array: NDArray[Any], *, compress: bool = False) -> tensor_pb2.Tensor:
    """Encodes an array of any layout and byte order.

    Args:
        array: Any shape with at most 8 axes.
        compress: Try zstd, and keep the result only if it is below 80 % of the size.

    Raises:
        TypeError: The element type has no wire form.
        ValueError: The array has too many axes.
    """
    if array.ndim > limits.MAX_RANK:
        raise ValueError(f"an array of {array.ndim} axes cannot be sent; at most {limits.MAX_RANK} are allowed")
    wire = dtype_to_wire(array.dtype)
    data = array.astype(_NUMPY[wire], copy=False).tobytes(order="C")
    encoding = Encoding.RAW
    if compress and data:
        packed = zstandard.ZstdCompressor(level=COMPRESSION_LEVEL).compress(data)
        if len(packed) < COMPRESSION_PAYS_BELOW * len(data):
            data, encoding = packed, Encoding.ZSTD
    return tensor_pb2.Tensor(
        dtype=tensor_pb2.Dtype.ValueType(wire),
        shape=array.shape,
        encoding=tensor_pb2.Encoding.ValueType(encoding),
        data=data,
    )


def decode(tensor: tensor_pb2.Tensor, *, max_bytes: int, what: str = "tensor") -> NDArray[Any]:
    """Decodes an untrusted tensor.

    Args:
        tensor: The message.
        max_bytes: Largest size after unpacking, in bytes.
        what: Name of the tensor in error messages.

    Returns:
        A read-only array; for RAW it shares the message's bytes.

    Raises:
        MalformedChunk: Type, shape, length or encoding is wrong.
    """
    dtype = _NUMPY.get(tensor.dtype)
    if dtype is None:
        raise MalformedChunk(f"{what}: element type {tensor.dtype} is unknown or not allowed here")
    if len(tensor.shape) > limits.MAX_RANK:  # before millions of them become objects of Python
        raise MalformedChunk(f"{what}: {len(tensor.shape)} axes; at most {limits.MAX_RANK} are allowed")
    shape = tuple(tensor.shape)
    size_bytes = _size_bytes(shape, dtype.itemsize, max_bytes, what)
    data = unpack(tensor.data, tensor.encoding, size_bytes, what)
    if dtype.kind == "b":
        flags = np.frombuffer(data, np.uint8)
        if flags.size and int(flags.max()) > 1:
            raise MalformedChunk(f"{what}: a bool is {int(flags.max())}; only 0 and 1 are allowed")
        return flags.view(np.bool_).reshape(shape)
    return np.frombuffer(data, dtype).reshape(shape)


def unpack(data: bytes, encoding: int, size_bytes: int, what: str) -> bytes:
    """Unpacks `data` into exactly `size_bytes` bytes; the caller has checked this size against its limit.

    Raises:
        MalformedChunk: The encoding is unknown, or the length is not exactly `size_bytes`.
    """
    if encoding == Encoding.RAW:
        if len(data) != size_bytes:
            raise MalformedChunk(f"{what}: {len(data)} bytes of data, but type and shape need {size_bytes}")
        return data
    if encoding != Encoding.ZSTD:
        raise MalformedChunk(f"{what}: encoding {encoding} is unknown; send RAW or ZSTD")
    try:
        stated = zstandard.frame_content_size(data)
        if stated != size_bytes:
            said = "no size" if stated < 0 else f"{stated} bytes"
            raise MalformedChunk(f"{what}: the zstd frame states {said}, but {size_bytes} bytes are needed")
        # The frame's size was checked, so this allocates exactly size_bytes.
        unpacked = zstandard.ZstdDecompressor().decompress(data, max_output_size=size_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise MalformedChunk(f"{what}: not exactly one complete zstd frame ({error})") from None
    if len(unpacked) != size_bytes:
        raise MalformedChunk(f"{what}: unpacks to {len(unpacked)} bytes, but {size_bytes} are needed")
    return unpacked


def _size_bytes(shape: tuple[int, ...], itemsize: int, max_bytes: int, what: str) -> int:
    """Returns the size of an array in Python integers, which cannot overflow; raises if it exceeds the limit."""
    size_bytes = math.prod(shape) * itemsize
    if size_bytes > max_bytes:
        raise MalformedChunk(f"{what}: shape {list(shape)} needs {size_bytes} bytes; at most {max_bytes} are allowed")
    if not size_bytes and math.prod(axis or 1 for axis in shape) * itemsize > limits.MAX_EMPTY_EXTENT_BYTES:
        raise MalformedChunk(f"{what}: shape {list(shape)} is out of bounds")
    return size_bytes


if sys.byteorder != "little":  # pragma: no cover - views on the wire's bytes are handed out as they are
    raise ImportError("rollcast needs a little-endian machine")
