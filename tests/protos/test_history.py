"""Tests the history of a process."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import numpy as np
import pytest
from rollcast.enums import ColumnRole
from rollcast.history import VARIABLE, History, digest_of, oldest_versions, open_history, session_name
from rollcast.trajectories import decode_chunk, encode_chunk

from tests.protos.builders import CARTPOLE, small_chunk


def test_nothing_is_written_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable, or with an empty one, there is no history."""
    monkeypatch.delenv(VARIABLE, raising=False)
    assert open_history("actor-1") is None
    monkeypatch.setenv(VARIABLE, "")
    assert open_history("actor-1") is None


def test_a_line_is_one_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two instances append to one private file, and each line is an object with the event and its time."""
    monkeypatch.setenv(VARIABLE, str(tmp_path / "histories"))
    first, second = open_history("learner-1"), open_history("learner-1")
    assert first is not None
    assert second is not None
    first.write("queued", chunk=first.chunk("secret", 3, 1), steps=7)
    second.write("taken")
    file = tmp_path / "histories" / "learner-1.jsonl"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    queued, taken = [json.loads(line) for line in file.read_text().splitlines()]
    assert queued["chunk"] == [session_name("secret"), 3, 1]
    assert "secret" not in file.read_text()
    assert (queued["event"], queued["steps"], taken["event"]) == ("queued", 7, "taken")
    assert queued["at"] <= taken["at"]


def test_an_unusable_folder_is_an_error(tmp_path: Path) -> None:
    """A history that cannot be written is an error, not a gap."""
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        History(tmp_path / "file" / "actor.jsonl")


def test_both_sides_compute_one_digest() -> None:
    """The digest is the same before and after the wire, and differs if one value of one row differs."""
    chunk = small_chunk()
    message = encode_chunk(chunk, compress=frozenset({"obs/state"}))
    assert digest_of(decode_chunk(message, CARTPOLE, max_bytes=1 << 20)) == digest_of(chunk)
    other = small_chunk()
    other.columns["reward"] = other.columns["reward"].copy()
    other.columns["reward"][-1] += 1
    assert digest_of(other) != digest_of(chunk)


def test_versions_are_no_content() -> None:
    """A learner that restarted drops the version offsets of a chunk, which stays the same chunk."""
    chunk, other = small_chunk(), small_chunk()
    other.columns["version_offset"] = np.zeros(other.rows, np.uint32)
    other.roles["version_offset"] = ColumnRole.STEP
    assert digest_of(other) == digest_of(chunk)


def test_versions_of_segments() -> None:
    """The oldest version of a segment is the smallest of its rows."""
    chunk = small_chunk()
    lengths = chunk.columns["length"].astype(int)
    offsets = np.arange(chunk.rows, dtype=np.uint32)[::-1]
    chunk.columns["version_offset"] = offsets
    parts = np.split(offsets, np.cumsum(lengths)[:-1])
    assert oldest_versions(chunk) == [chunk.base_version + int(part.min()) for part in parts]
