"""Tests consecutive PNG files as channels of one image."""

import io
import re
import struct
import sys
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from rollcast.extras import install
from rollcast.unity.pictures import MAX_FILES, MAX_PIXELS, BadPicture, PictureReader

from tests.actor_client.unity.agents import part, pixels, png

Bytes = NDArray[np.uint8]


def read(files: bytes, channels: int, mapping: list[int] | None = None, size: tuple[int, int] = (6, 5)) -> Bytes:
    """Returns an image of a sensor."""
    into = np.full((channels, *size), 77, np.uint8)
    PictureReader(channels, *size).read(files, mapping or [], into)
    return into


def pillow_png(image: Image.Image) -> bytes:
    """Returns a file of another encoder."""
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def test_files_one_after_another() -> None:
    """Each file adds three channels, and those with a negative target are dropped."""
    first, second = pixels(6, 5, 1), pixels(6, 5, 2)
    found = read(png(first) + png(second), 5, [0, 1, 2, 3, 4, -1])
    assert np.array_equal(found, np.concatenate((first, second), axis=2)[..., :5].transpose(2, 0, 1))


def test_sources_of_one_channel_are_averaged() -> None:
    """Sources of one channel are averaged and rounded half up."""
    image = pixels(6, 5)
    image[0, 0] = (0, 1, 1)
    image[0, 1] = (255, 255, 255)
    sums = image.astype(int).sum(axis=2)
    assert np.array_equal(read(png(image), 1, [0, 0, 0])[0], (2 * sums + 3) // 6)
    two = read(png(image), 2, [0, 1, 1])
    assert np.array_equal(two[1], (image[..., 1].astype(int) + image[..., 2] + 1) // 2)


def test_old_players_have_no_mapping() -> None:
    """Without a mapping one channel is the first file's average, and several are the first ones."""
    first, second = pixels(6, 5, 1), pixels(6, 5, 2)
    assert np.array_equal(read(png(first), 1)[0], (2 * first.astype(int).sum(axis=2) + 3) // 6)
    assert np.array_equal(read(png(first), 2), first.transpose(2, 0, 1)[:2])
    both = np.concatenate((first, second), axis=2)
    assert np.array_equal(read(png(first) + png(second), 4), both.transpose(2, 0, 1)[:4])


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "P", "1", "LA"])
def test_files_of_other_encoders(mode: str) -> None:
    """Palettes, grey and transparency become colors."""
    image = Image.fromarray(pixels(6, 5)).convert(mode)
    expected = np.asarray(image.convert("RGB")).transpose(2, 0, 1)
    assert np.array_equal(read(pillow_png(image), 3, [0, 1, 2]), expected)


def test_pillow_gets_nothing_but_the_picture() -> None:
    """Texts, profiles and data after the last needed file are removed before Pillow reads it."""
    image, text = pixels(6, 5), part(b"zTXt", b"x\0\0" + zlib.compress(bytes(80 << 20), 9))
    profile = part(b"iCCP", b"x\0\0" + b"no zlib")
    assert np.array_equal(read(png(image, text, profile) + b"rest", 3), image.transpose(2, 0, 1))


def test_a_file_of_another_size() -> None:
    """A file of another size is refused before it is decompressed."""
    header = part(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0))
    bomb = b"\x89PNG\r\n\x1a\n" + header + part(b"IDAT", zlib.compress(bytes(1 << 20), 9)) + part(b"IEND", b"")
    with pytest.raises(BadPicture, match=r"2147483647 x 2147483647 pixels \(height x width\), not 6 x 5"):
        read(bomb, 3)
    with pytest.raises(BadPicture, match="5 x 6 pixels"):
        read(png(pixels(5, 6)), 3)


def test_a_second_header_is_damage() -> None:
    """Pillow would take the size of a file's second header, and its memory."""
    second = part(b"IHDR", struct.pack(">IIBBBBB", 10_000, 10_000, 8, 2, 0, 0, 0))
    with pytest.raises(BadPicture, match="cut short or damaged"):
        read(png(pixels(6, 5), second), 3)


def test_announced_sizes_are_bounded() -> None:
    """Too many announced pixels or files are refused before decoding."""
    reader = PictureReader(1, MAX_PIXELS, 2)
    with pytest.raises(BadPicture, match="pixels"):
        reader.read(png(pixels(2, 2)), [], np.empty((1, 1, 1), np.uint8))
    with pytest.raises(BadPicture, match="bytes together"):
        PictureReader(1, 4000, 4000).read(b"", [0] * 3000, np.empty((1, 1, 1), np.uint8))
    with pytest.raises(BadPicture, match="channel mapping of"):
        read(png(pixels(6, 5)), 1, [0] * (3 * MAX_FILES + 1))


@pytest.mark.parametrize(
    ("files", "mapping", "words"),
    [
        (b"", [], "only 0 arrived"),
        (b"JFIF not a PNG at all", [], "none begins at byte 0 of 21"),
        (png(pixels(6, 5)), [0, 1, 2, 0, 1, 2], "only 1 arrived"),
        (png(pixels(6, 5)) + b"?", [0, 1, 2, 0, 1, 2], "none begins"),
        (png(pixels(6, 5)), [0, 1, 3], "to channel 3; the picture has 3"),
        (png(pixels(6, 5))[:-5], [], "cut short"),
        (png(pixels(6, 5))[:20], [], "cut short"),
        (b"\x89PNG\r\n\x1a\n" + part(b"IDAT", b""), [], "cut short or damaged"),
        (b"\x89PNG\r\n\x1a\n" + part(b"IHDR", b""), [], "cut short or damaged"),
        (png(pixels(6, 5)).replace(b"IDAT", b"IDOT"), [], "cannot be decoded"),
    ],
)
def test_what_is_no_picture(files: bytes, mapping: list[int], words: str) -> None:
    """The error says what is wrong with the file."""
    with pytest.raises(BadPicture, match=words):
        read(files, 3, mapping)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Pillow the error of an image says how to install it."""
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(BadPicture, match=re.escape(install("unity"))):
        read(png(pixels(6, 5)), 3)


GOOD = png(pixels(6, 5))


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.binary(max_size=12)), max_size=3), st.integers(0, 20))
def test_damage_is_an_error_or_a_picture(damage: list[tuple[int, bytes]], cut: int) -> None:
    """A corrupted file is read or is an error of one line."""
    data = bytearray(GOOD)
    for at, replaced in damage:
        data[at : at + len(replaced)] = replaced
    line = ""
    try:
        found = read(bytes(data[: len(data) - cut]), 3)
        assert found.shape == (3, 6, 5)
    except BadPicture as error:
        line = str(error)
    assert line.isprintable()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-1, 3), max_size=9))
def test_any_header_and_mapping(content: bytes, mapping: list[int]) -> None:
    """Any header with correct checksums, and any mapping, is read or an error of one line."""
    header = part(b"IHDR", struct.pack(">II", 5, 6) + content[:5].ljust(5, b"\0"))
    data = b"\x89PNG\r\n\x1a\n" + header + part(b"PLTE", content[5:20]) + part(b"IDAT", zlib.compress(content))
    line = ""
    try:
        read((data + part(b"IEND", b"")) * 3, 3, mapping)
    except BadPicture as error:
        line = str(error)
    assert line.isprintable()
