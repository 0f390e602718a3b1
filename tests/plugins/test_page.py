"""Tests that the first page of CONTRIBUTING.md shows the example package."""

from __future__ import annotations

import inspect
import textwrap

import pytest

from deploy.examples.rollcast_example.rollcast_example.penalty import PenaltyTrainer
from tests.documents import ROOT, blocks
from tests.plugins.page import FIRST_PAGE

PACKAGE = ROOT / "deploy" / "examples" / "rollcast_example" / "rollcast_example"
MAX_LOSS_LINES = 20


@pytest.mark.parametrize("language", ["python", "toml"])
def test_its_blocks_stand_in_the_package(language: str) -> None:
    """Every printed block is part of a file of the package."""
    printed = blocks(FIRST_PAGE, language)
    assert printed
    files = [file.read_text(encoding="utf-8") for file in (*PACKAGE.glob("*.py"), PACKAGE.parent / "pyproject.toml")]
    for block in printed:
        assert any(block in file or textwrap.indent(block, "    ") in file for file in files), block


def test_the_loss_is_shown_in_full_and_is_short() -> None:
    """The loss is printed whole and has at most 20 lines with its docstring."""
    source = textwrap.dedent(inspect.getsource(PenaltyTrainer.loss))
    assert f"```python\n{source}```" in FIRST_PAGE
    assert len(source.splitlines()) <= MAX_LOSS_LINES
