"""Fixtures of the settings' tests."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

WriteRun = Callable[[str], Path]


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Writes a run file from an indented text and returns its path."""

    def write(text: str) -> Path:
        path = tmp_path / "run.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return write
