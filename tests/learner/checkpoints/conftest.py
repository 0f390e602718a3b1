"""Fixtures: a full disk, and opened run folders."""

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
    """Makes a folder in which at most 256 KiB can be written.

    It is a mounted file system if this process may mount one, and otherwise the process's limit on file sizes.
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
