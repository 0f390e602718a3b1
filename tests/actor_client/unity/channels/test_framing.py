"""Tests the framing of side-channel bytes."""

import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from actor_client.unity.channels.framing import BadSideChannel, Reader, float32, int32, pack, string, unpack

FIRST = UUID("00112233-4455-6677-8899-aabbccddeeff")
SECOND = UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7")


def test_records_come_back_as_they_were_packed() -> None:
    """Any number of records, including empty ones, survive a round trip in order."""
    records = [(FIRST, b""), (SECOND, b"x" * 1000), (FIRST, b"\0\xff")]
    assert unpack(pack(records)) == records
    assert pack([]) == b""
    assert unpack(b"") == []


def test_the_uuid_is_in_the_byte_order_of_dot_net() -> None:
    """The first three groups of the UUID are little-endian, as `Guid.ToByteArray` writes them."""
    assert pack([(FIRST, b"")]).hex() == "33221100554477668899aabbccddeeff" + "00000000"


@pytest.mark.parametrize(
    ("tail", "said"),
    [
        (b"\0" * 19, "19 bytes are left"),
        (FIRST.bytes_le + b"\xff\xff\xff\xff", "payload of -1 bytes"),
        (FIRST.bytes_le + b"\xff\xff\xff\x7f" + b"abc", "payload of 2147483647 bytes; 3 are left"),
        (FIRST.bytes_le + b"\x05\0\0\0" + b"abcd", "payload of 5 bytes; 4 are left"),
    ],
)
def test_a_length_that_cannot_be_is_refused_and_costs_no_record_before_it(tail: bytes, said: str) -> None:
    """An invalid length raises one line, allocates nothing and keeps the records before it."""
    good = [(SECOND, b"good")]
    with pytest.raises(BadSideChannel, match=said) as caught:
        unpack(pack(good) + tail)
    assert list(caught.value.intact) == good
    assert "\n" not in str(caught.value)


def test_random_bytes_either_mean_something_or_raise() -> None:
    """Random bytes only raise BadSideChannel, and the records read are a prefix."""
    draw = random.Random(5)
    for _ in range(2000):
        data = draw.randbytes(draw.randrange(120))
        assert data.startswith(pack(_readable(data)))


def _readable(data: bytes) -> Sequence[tuple[UUID, bytes]]:
    try:
        return unpack(data)
    except BadSideChannel as error:
        return error.intact


def test_primitives_are_read_in_the_order_they_were_written() -> None:
    """Numbers and texts are little-endian; texts carry their length in bytes."""
    reader = Reader(int32(-7) + float32(1.5) + string("key") + string(""))
    assert (reader.int32(), reader.float32(), reader.string(), reader.string()) == (-7, 1.5, "key", "")
    with pytest.raises(BadSideChannel, match="past the end"):
        reader.int32()


@pytest.mark.parametrize("payload", [b"", b"\x01", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7fabc", b"\x04\0\0\0abc"])
def test_a_text_whose_length_cannot_be_is_refused(payload: bytes) -> None:
    """A text with an invalid length raises one line."""
    with pytest.raises(BadSideChannel):
        Reader(payload).string()


def test_what_does_not_fit_the_wire_becomes_the_nearest_that_does() -> None:
    """Numbers beyond int32 and float32 are clipped, and characters beyond ASCII are replaced."""
    assert Reader(int32(2**40)).int32() == 2**31 - 1
    assert Reader(int32(-(2**40))).int32() == -(2**31)
    assert Reader(float32(1e300)).float32() == Reader(float32(3.4028234663852886e38)).float32()
    assert Reader(float32(float("-inf"))).float32() == float("-inf")
    assert Reader(string("größe")).string() == "gr??e"
