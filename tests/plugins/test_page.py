"""The first page of CONTRIBUTING.md shows the example package as it is."""

from __future__ import annotations

import inspect
import re
import textwrap
from pathlib import Path

import pytest

from tests.plugins.page import FIRST_PAGE
from tests.plugins.rollcast_example.rollcast_example.penalty import PenaltyTrainer

PACKAGE = Path(__file__).parent / "rollcast_example" / "rollcast_example"
MAX_LOSS_LINES = 20


@pytest.mark.parametrize("language", ["python", "toml"])
def test_its_blocks_stand_in_the_package(language: str) -> None:
    """What is shown is part of a file of the package, to the letter."""
    blocks = re.findall(rf"```{language}\n(.*?)```", FIRST_PAGE, flags=re.DOTALL)
    assert blocks
    files = [file.read_text(encoding="utf-8") for file in (*PACKAGE.glob("*.py"), PACKAGE.parent / "pyproject.toml")]
    for block in blocks:
        assert any(block in file or textwrap.indent(block, "    ") in file for file in files), block


def test_the_loss_is_shown_in_full_and_is_short() -> None:
    """A loss of one's own is a formula of at most 20 lines, its docstring included."""
    source = textwrap.dedent(inspect.getsource(PenaltyTrainer.loss))
    assert f"```python\n{source}```" in FIRST_PAGE
    assert len(source.splitlines()) <= MAX_LOSS_LINES
