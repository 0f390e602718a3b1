"""Fixtures: a full disk, and opened run folders."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOM_BYTES = 256 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Makes a folder; while it is used, this process's limit of file sizes allows no file of more than 256 KiB."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (ROOM_BYTES, hard))
    yield tmp_path
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
