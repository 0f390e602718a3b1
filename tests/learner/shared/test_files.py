"""Tests that files are replaced atomically."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from rollcast.files import read_regular

from learner.shared.files import TEMPORARY_PREFIX, WriteFailed, atomic_file, open_regular, remove_leftovers, write_file
from tests.e2e.processes import wait_until

WRITER = """
import sys
from pathlib import Path
from learner.shared.files import write_file
path = Path(sys.argv[1])
while True:
    for letter in b"ab":
        write_file(path, bytes([letter]) * 300_000)
"""


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    """The new content replaces the old, and no other file is left."""
    path = tmp_path / "file"
    write_file(path, b"old")
    write_file(path, b"new")
    assert path.read_bytes() == b"new"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_others_may_read_it(tmp_path: Path) -> None:
    """The file has the permissions of the process's umask."""
    write_file(tmp_path / "file", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "file").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_error_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    """An error in the block keeps the old file and is raised."""
    path = tmp_path / "file"
    write_file(path, b"old")
    with pytest.raises(TypeError), atomic_file(path) as stream:
        stream.writelines([b"half", "not bytes"])  # type: ignore[list-item]
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    """The error names the file and the reason."""
    path = tmp_path / "missing" / "file"
    with pytest.raises(WriteFailed, match="No such file or directory") as caught:
        write_file(path, b"")
    assert str(path) in str(caught.value)
    assert caught.value.path == path


@pytest.mark.parametrize("links", [True, False])
def test_the_replaced_file_is_kept_under_another_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """With `keep`, the previous version is always available, also without hard links."""
    if not links:
        monkeypatch.setattr(os, "link", _refuse)
    path, previous = tmp_path / "file", tmp_path / "previous"
    for number in range(4):
        write_file(path, b"%d" % number, keep=previous)
    assert (path.read_bytes(), previous.read_bytes()) == (b"3", b"2")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "previous"]


def _refuse(*_: object, **__: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.mark.slow
def test_a_killed_writer_leaves_a_whole_file(tmp_path: Path) -> None:
    """A killed writer leaves one of the two versions."""
    path = tmp_path / "file"
    for _ in range(5):
        path.unlink(missing_ok=True)
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
        try:
            wait_until(path.exists, "a first version")  # looks now and then, so that it is killed at any moment
        finally:
            writer.kill()
            writer.wait()
        assert path.read_bytes() in (b"a" * 300_000, b"b" * 300_000)
    remove_leftovers(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_leftovers_are_told_from_files(tmp_path: Path) -> None:
    """Only unfinished files are removed."""
    for name in ("file", f"{TEMPORARY_PREFIX}0123", ".hidden"):
        (tmp_path / name).write_bytes(b"")
    remove_leftovers(tmp_path)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [".hidden", "file"]


def test_a_file_where_the_folder_was_is_named(tmp_path: Path) -> None:
    """If cleaning up fails too, the error still names the file that could not be written."""
    (tmp_path / "folder").write_text("in the way")
    with pytest.raises(WriteFailed, match="Not a directory"):
        write_file(tmp_path / "folder" / "file", b"")


def test_pipes_and_devices_are_no_files(tmp_path: Path) -> None:
    """Pipes, devices and too large files are an error immediately."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    for name in ("pipe", "endless"):
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_APPEND, os.O_RDWR):
            with pytest.raises(OSError):  # noqa: PT011 - a pipe without a reader has an error of its own
                open_regular(tmp_path / name, flags)
        with pytest.raises(OSError, match="not a regular file"):
            read_regular(tmp_path / name, 10)
    (tmp_path / "file").write_bytes(b"0123456789")
    assert read_regular(tmp_path / "file", 10) == b"0123456789"
    with pytest.raises(OSError, match="has 10 bytes; the limit is 9"):
        read_regular(tmp_path / "file", 9)
    os.truncate(tmp_path / "file", 2**28)
    tracemalloc.start()
    try:
        with pytest.raises(OSError, match="the limit is"):
            read_regular(tmp_path / "file", 2**27)
        assert tracemalloc.get_traced_memory()[1] < 2**24, "a file that is too large is not read"
    finally:
        tracemalloc.stop()


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    """A private file has no access for others, also when it replaces a public one."""
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_file(path, b"new", keep=tmp_path / "kept", private=True)
    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == 0o600
