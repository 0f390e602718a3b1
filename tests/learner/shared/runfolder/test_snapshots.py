"""Tests the files of policies that are kept for matches."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from learner.shared.files import WriteFailed
from learner.shared.policies import PolicyKey
from learner.shared.runfolder.snapshots import SnapshotFiles
from tests.learner.service.calls.samples import NAME, make_policy


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Lets this process open no file for a block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_snapshot_outlives_the_process(tmp_path: Path) -> None:
    """Header and bytes of a snapshot are read from its key alone, and its name says what it is."""
    stored = make_policy(7, generation=3)
    key = SnapshotFiles(tmp_path).write(stored)
    again = SnapshotFiles(tmp_path)
    assert again.read(NAME, key) == stored
    assert again.keys(NAME) == {key}
    (model,) = tmp_path.rglob("*.onnx")
    assert model.relative_to(tmp_path).as_posix() == f"CartPole/snapshots/3-7-{key.sha256.hex()}.onnx"
    assert model.read_bytes() == stored.payload
    assert again.write(stored) == key


def test_only_what_is_kept_stays(tmp_path: Path) -> None:
    """All other snapshots of the behavior are deleted with their headers; foreign files stay."""
    files = SnapshotFiles(tmp_path)
    keys = [files.write(make_policy(version)) for version in range(4)]
    folder = tmp_path / NAME / "snapshots"
    (folder / "notes.txt").write_text("mine")
    files.keep(NAME, keys[1:3])
    assert files.keys(NAME) == {*keys[1:3]}
    assert len(list(folder.iterdir())) == 5
    assert files.read(NAME, keys[0]) is None
    assert files.keys("Walker") == frozenset()
    files.keep("Walker", ())


@pytest.mark.parametrize("damage", ["model", "header", "no header", "other"])
def test_a_damaged_snapshot_is_not_there(tmp_path: Path, damage: str) -> None:
    """A snapshot whose content does not match its name is logged and counts as missing."""
    files = SnapshotFiles(tmp_path)
    key = files.write(make_policy(1))
    (model,) = tmp_path.rglob("*.onnx")
    header = model.with_suffix(".header")
    if damage == "model":
        model.write_bytes(b"other bytes")
    elif damage == "header":
        header.write_bytes(b"\xff\xff\xff")
    elif damage == "no header":
        header.unlink()
    else:
        files.write(make_policy(2))
        other = next(path for path in tmp_path.rglob("*.header") if path != header)
        header.write_bytes(other.read_bytes())
    with capture_logs() as logs:
        assert files.read(NAME, key) is None
    assert [line["event"] for line in logs] == ([] if damage == "no header" else ["snapshot_unreadable"])


def test_a_folder_that_cannot_be_read_keeps_its_snapshots(tmp_path: Path) -> None:
    """Snapshots whose folder cannot be listed, as without a free descriptor, are deleted another time."""
    files = SnapshotFiles(tmp_path)
    keys = [files.write(make_policy(version)) for version in range(3)]
    with no_descriptors(), capture_logs() as logs:
        files.keep(NAME, keys[1:])
    assert [line["event"] for line in logs] == ["snapshots_not_deleted"]
    assert files.keys(NAME) == {*keys}
    files.keep(NAME, keys[1:])
    assert files.keys(NAME) == {*keys[1:]}


def test_what_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A snapshot that cannot be written is reported, because the pool must not name it."""
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "snapshots").write_text("not a folder")
    with pytest.raises(WriteFailed):
        SnapshotFiles(tmp_path).write(make_policy(1))
    with pytest.raises(ValueError, match="SHA-256 has 32"):
        SnapshotFiles(tmp_path).read(NAME, PolicyKey(1, 1, b"short"))
