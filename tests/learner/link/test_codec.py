"""Tests that messages of the link survive as bytes, and that damaged bytes are refused."""

from __future__ import annotations

import os
import struct
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from learner.link.codec import OF_TRAINERS, PIECE_BYTES, Assembler, DamagedMessageError, Encoded
from learner.link.control import StopTurns
from learner.link.opening import Hello
from learner.link.to_front import Done, Policy, Settled, Stats
from learner.link.to_trainers import Books, Experience
from tests.coded_link import coded
from tests.learner.link.test_messages import MESSAGES
from tests.learner.service.calls.samples import make_chunk, make_policy

NUMBERS = st.integers(-(2**63), 2**63 - 1)
PLAIN = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats() | st.text() | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | NUMBERS | st.tuples(st.text(max_size=3), NUMBERS), inner)
    ),
    max_leaves=8,
)
ARRAYS = arrays.arrays(
    st.one_of(
        st.just(np.dtype(bool)),
        arrays.integer_dtypes(endianness="<"),
        arrays.unsigned_integer_dtypes(endianness="<"),
        arrays.floating_dtypes(endianness="<", sizes=(16, 32, 64)),
    ),
    arrays.array_shapes(min_dims=0, min_side=0, max_dims=3, max_side=5),
)


def whole(message: Any) -> bytes:
    """Returns a message as one piece."""
    return b"".join(bytes(piece) for piece in Encoded(message).pieces())


@given(PLAIN)
def test_plain_values_arrive_as_they_are(value: Any) -> None:
    """Values of a state keep their values and types, at any depth, also numbers that are not finite."""
    arrived = coded(Books(1, {"state": value})).state["state"]
    assert repr(arrived) == repr(value)


@given(st.dictionaries(st.text(max_size=8), ARRAYS, max_size=5), st.integers(1, 200))
def test_arrays_arrive_whatever_the_pieces(columns: dict[str, Any], most_bytes: int) -> None:
    """Arrays of any shape and type arrive with their bits, whatever the size of the pieces."""
    message = Experience(0, 1, replace(make_chunk(), columns=columns, roles={}), "session", 0, 1, 0.5)
    assembler = Assembler()
    found = [assembler.add(piece) for piece in Encoded(message).pieces(max(32, most_bytes))]

    *earlier, arrived = found
    assert not any(earlier)
    assert isinstance(arrived, Experience)
    assert assembler.is_between_messages
    for name, ours in columns.items():
        theirs = arrived.chunk.columns[name]
        assert (theirs.dtype, theirs.shape, theirs.tobytes()) == (ours.dtype, ours.shape, ours.tobytes())
        assert not theirs.flags.writeable


@pytest.mark.parametrize("part", [np.s_[::2, 1::2], np.s_[:, 3]], ids=["block", "column"])
@pytest.mark.parametrize("size", [1, 1000])
def test_an_array_need_not_be_contiguous(part: Any, size: int) -> None:
    """A view with strides arrives as the values that it shows, and as a copy."""
    column = np.arange(24 * size, dtype=np.float32).reshape(4, 6 * size)[part]
    expected = column.copy()
    arrived = coded(Experience(0, 1, replace(make_chunk(), columns={"x": column}), "s", 0, 1, 0.5))
    column[:] = 0
    np.testing.assert_array_equal(arrived.chunk.columns["x"], expected)


def test_a_policy_travels_in_pieces_of_a_mebibyte() -> None:
    """A large policy is cut, and arrives with its bytes."""
    policy = Policy(make_policy(3, size=3 * 2**20 + 7))
    pieces = list(Encoded(policy).pieces())
    assert len(pieces) == 4
    assert max(len(piece) for piece in pieces) == PIECE_BYTES
    assert coded(policy) == policy


def test_a_small_message_is_one_piece() -> None:
    """Many small columns do not cost a piece each."""
    (_,) = Encoded(Experience(0, 7, make_chunk(5), "session", 3, 100, 12.5)).pieces()


@pytest.mark.parametrize("shared", [threading.Lock(), lambda: None, np.array([None])], ids=type)
def test_what_belongs_to_one_process_is_not_sent(shared: object) -> None:
    """Only the listed types are sent, also inside a state."""
    with pytest.raises(TypeError, match="cannot be sent over the link"):
        Encoded(Books(1, {"x": shared}))


def test_only_messages_are_sent() -> None:
    """A part of a message is no message."""
    with pytest.raises(TypeError, match="is no message of the link"):
        Encoded(make_chunk())


MESSAGE_BYTES = [whole(message) for message in MESSAGES]


@given(st.sampled_from(MESSAGE_BYTES), st.data())
def test_damage_gives_a_message_or_a_clear_error(sound: bytes, data: st.DataObject) -> None:
    """Changed, missing and additional bytes raise nothing but `DamagedMessageError`."""
    at = data.draw(st.integers(0, len(sound) - 1))
    put = data.draw(st.binary(max_size=8) | st.sampled_from([b"\x90", b"\xc0", b"\xff", b"\x80", b"\xd4\x01", b"\xcf"]))
    taken = data.draw(st.integers(0, 8))
    damaged = sound[:at] + put + sound[at + taken :]
    with suppress(DamagedMessageError):
        Assembler().add(damaged)


def headed(sizes: Any, kind: str, content: Any, buffer_bytes: int = 0) -> bytes:
    """Returns a message with these sizes of buffers, and with buffers of zeros."""
    head, fields = msgspec.msgpack.encode((sizes, kind)), msgspec.msgpack.encode(content)
    start = struct.pack("<4sIIQ", b"RCL2", len(head) + len(fields), len(head), buffer_bytes)
    return start + head + fields + bytes(buffer_bytes)


@given(st.recursive(NUMBERS | st.text(max_size=3) | st.binary(max_size=3), st.lists, max_leaves=8))
def test_any_header_gives_a_clear_error(plain: Any) -> None:
    """A header of plain values that are no message raises nothing but `DamagedMessageError`."""
    for message in (headed([[plain]], "Done", {"behavior": 1}), headed([], "Done", plain)):
        with pytest.raises(DamagedMessageError):
            Assembler().add(message)


ARRAY = msgspec.msgpack.Ext(1, msgspec.msgpack.encode((0, "<f4", [1])))


@pytest.mark.parametrize(
    ("kind", "content", "told"),
    [
        ("Popen", {}, "'Popen' is no message"),
        ("Pace", {}, "'Pace' is no message"),
        ("Done", {}, "missing required field `behavior`"),
        ("Done", {"behavior": "x"}, "Expected `int`, got `str`"),
        ("Done", [1], "Expected `object`, got `array`"),
        ("Books", {"number": 1, "state": {"x": ARRAY}}, "a buffer that does not exist"),
        ("Books", {"number": 1, "state": {"x": msgspec.msgpack.Ext(7, b"")}}, "unknown extension"),
        ("Failed", {"exit_code": 12345, "message": ""}, "Invalid enum value 12345"),
        ("Assign", {"assignment": 1}, "a int stands for a Assignment"),
        ("Hello", {"loaded": {"path": None, "options": 7}}, "RunOptions"),
    ],
)
def test_the_error_says_what_is_wrong(kind: str, content: Any, told: str) -> None:
    """No class of another module is found, and the error names the fault."""
    with pytest.raises(DamagedMessageError, match=told):
        Assembler().add(headed([], kind, content))


def test_the_service_reads_no_settings() -> None:
    """What only the service sends is no message for it: reading settings imports the code that they name."""
    hello = headed([], "Hello", {"loaded": {"options": {"behaviors": {"A": {"trainer_type": "antigravity:fly"}}}}})
    with pytest.raises(DamagedMessageError, match="'Hello' is no message of this side"):
        Assembler(kinds=OF_TRAINERS).add(hello)


def test_an_announced_size_takes_no_memory_beyond_the_limit() -> None:
    """Impossible sizes are refused before memory is taken."""
    with pytest.raises(DamagedMessageError, match="buffers of"):
        Assembler().add(struct.pack("<4sIIQ", b"RCL2", 10, 5, 2**60))
    with pytest.raises(DamagedMessageError, match="a header of 10"):
        Assembler().add(struct.pack("<4sIIQ", b"RCL2", 10, 11, 0))
    with pytest.raises(DamagedMessageError, match="were announced"):
        Assembler().add(headed([2**31], "Done", {"behavior": 0}))
    with pytest.raises(DamagedMessageError, match="cannot be read"):
        Assembler().add(headed([2**60], "Done", {"behavior": 0}))


def test_messages_follow_each_other() -> None:
    """An assembler takes one message after the other."""
    assembler = Assembler()
    for message in (Done(1), StopTurns(), Done(2)):
        assert assembler.add(whole(message)) == message


def test_settings_keep_their_type_and_values() -> None:
    """The settings of a trainer arrive as the model of their trainer."""
    (asked,) = [message for message in MESSAGES if type(message).__name__ == "EstimateMemory"]
    arrived = coded(asked).settings
    assert type(arrived.hyperparameters) is type(asked.settings.hyperparameters)
    assert arrived == asked.settings


def test_whole_numbers_stay_whole() -> None:
    """Counts among a trainer's numbers, which APIs declare as integers, do not become floats."""
    (stats,) = [message for message in MESSAGES if isinstance(message, Stats)]
    assert repr(coded(stats).trainers) == repr(stats.trainers)


def test_enums_keep_their_type() -> None:
    """An enum that is a number arrives as the enum."""
    (settled,) = [message for message in MESSAGES if isinstance(message, Settled)]
    assert type(coded(settled).pace.hold) is type(settled.pace.hold)


@pytest.mark.parametrize(("element", "shape"), [("<f4", [1]), ("<f4", [3]), ("<f4", [2, 2]), ("O", [1]), ("<f4", [-2])])
def test_an_array_is_what_its_buffer_holds(element: str, shape: list[int]) -> None:
    """An array that is smaller or larger than its buffer, or of no number, is refused."""
    array = msgspec.msgpack.Ext(1, msgspec.msgpack.encode((0, element, shape)))
    message = headed([8], "Books", {"number": 1, "state": {"x": array}}, 64)
    with pytest.raises(DamagedMessageError, match=r"has 8 bytes|no element type|cannot be read"):
        Assembler().add(message)


def test_a_path_that_is_no_text_arrives() -> None:
    """The bytes of a path's name arrive, whatever they are."""
    (hello,) = [message for message in MESSAGES if type(message) is Hello]
    odd = replace(hello, folder=Path(os.fsdecode(b"results/\xff")))
    assert coded(odd).folder == odd.folder
