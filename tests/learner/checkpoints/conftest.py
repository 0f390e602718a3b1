"""A full disk, and opened run folders."""

from __future__ import annotations

import contextlib
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM_BYTES = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder in which no more than 256 KiB can be written.

    It is a file system of its own where this process may mount one; else the process's limit on the size of a file.
    """
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={ROOM_BYTES}", "tmpfs", str(folder)]
    with contextlib.ExitStack() as stack:
        if subprocess.run(mount, check=False, capture_output=True).returncode == 0:
            stack.callback(subprocess.run, ["umount", "--lazy", str(folder)], check=True)
        else:
            soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, (soft, hard))
            resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))
        yield folder
