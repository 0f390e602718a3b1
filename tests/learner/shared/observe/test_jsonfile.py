"""Tests that JSON files are replaced atomically."""

import json
import math
import os
from pathlib import Path

import pytest

from learner.shared.files import WriteFailed
from learner.shared.observe.jsonfile import AppendFile, as_json, write_json
from tests.learner.shared.observe.disk import no_larger_than


def test_what_json_lacks_is_translated(tmp_path: Path) -> None:
    """NaN and infinities become null, tuples lists, and other values text."""
    value = {"a": math.nan, "b": (1, -math.inf, True), 3: Path("x/y"), "c": {"d": None, "e": b"raw"}}
    path = tmp_path / "file.json"
    write_json(path, value)
    assert json.loads(path.read_text()) == {
        "a": None,
        "b": [1, None, True],
        "3": "x/y",
        "c": {"d": None, "e": "b'raw'"},
    }
    assert as_json("text") == "text"


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """A failed replacement is an error without a temporary file."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(WriteFailed, match="taken"):
        write_json(tmp_path / "taken", {})
    with pytest.raises(WriteFailed, match="missing"):
        write_json(tmp_path / "missing" / "file.json", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_a_full_disk_leaves_no_half(tmp_path: Path) -> None:
    """A piece that does not fit is left out whole, and a later one is readable."""
    path = tmp_path / "file"
    file = AppendFile(path)
    file.append(b"one\n")
    with no_larger_than(6), pytest.raises(OSError, match="too large"):
        file.append(b"three\n")
    assert (path.read_bytes(), file.size_bytes) == (b"one\n", 4)
    file.append(b"four\n")
    file.close()
    assert path.read_bytes() == b"one\nfour\n"


@pytest.mark.parametrize("rest", [b"", b"half", b"x" * 200_000])
def test_a_line_that_a_crash_cut_is_removed(tmp_path: Path, rest: bytes) -> None:
    """An incomplete last line is removed, also the only one; the next piece is appended."""
    path = tmp_path / "file"
    for before in (b"one\n", b""):
        path.write_bytes(before + rest)
        file = AppendFile(path)
        file.append(b"two\n")
        file.close()
        file.close()
        assert path.read_bytes() == before + b"two\n"


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    """A pipe or device is refused without waiting."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        with pytest.raises(OSError):  # noqa: PT011 - a pipe without a reader has an error of its own
            AppendFile(tmp_path / name)
