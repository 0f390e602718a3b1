"""JSON files that are whole or not there."""

import json
import math
import threading
from pathlib import Path

import pytest

from learner.common.files import WriteFailed
from learner.observe.jsonfile import as_json, write_json


def test_what_json_lacks_is_translated(tmp_path: Path) -> None:
    """NaN and infinities become null, tuples lists, paths and other values text; the file is strict JSON."""
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


def test_a_reader_sees_the_old_or_the_new_file(tmp_path: Path) -> None:
    """While a file is rewritten over and over, each read gives one complete version."""
    path = tmp_path / "file.json"
    write_json(path, {"number": 0, "filler": "x" * 100_000})
    done = threading.Event()

    def rewrite() -> None:
        for number in range(30):
            write_json(path, {"number": number, "filler": "x" * 100_000})
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    while not done.is_set():
        assert len(json.loads(path.read_text())["filler"]) == 100_000
    writer.join()
    assert [entry.name for entry in tmp_path.iterdir()] == ["file.json"]


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    """Where the file cannot take its place, the error is told and no temporary file stays."""
    (tmp_path / "taken").mkdir()
    with pytest.raises(WriteFailed, match="taken"):
        write_json(tmp_path / "taken", {})
    with pytest.raises(WriteFailed, match="missing"):
        write_json(tmp_path / "missing" / "file.json", {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]
