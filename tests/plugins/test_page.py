"""Tests that PLUGINS.md shows the example package."""

from __future__ import annotations

import textwrap

import pytest

from tests.documents import ROOT, blocks
from tests.plugins.page import PAGE

OWN = ROOT / "deploy" / "examples" / "own"
PACKAGE = ROOT / "deploy" / "examples" / "rollcast_example" / "rollcast_example"


@pytest.mark.parametrize("language", ["python", "toml"])
def test_its_blocks_stand_in_the_package(language: str) -> None:
    """Every printed block is part of a file of the package, or of the example without one."""
    printed = blocks(PAGE, language)
    assert printed
    files = [
        file.read_text(encoding="utf-8")
        for file in (*OWN.glob("*.py"), *PACKAGE.glob("*.py"), PACKAGE.parent / "pyproject.toml")
    ]
    for block in printed:
        assert any(block in file or textwrap.indent(block, "    ") in file for file in files), block
