"""Tests the page of clients: each language's file is short, and counted."""

from __future__ import annotations

import re

import pytest

from tests.documents import ROOT, text_of

PAGE = "deploy/clients/README.md"
MAX_LINES = 300
ROW = re.compile(r"^\| [^|]+ \| \[[^]]+\]\(([^)]+)\) \| (\d+) \|", flags=re.MULTILINE)
ROWS = ROW.findall(text_of(PAGE))


def test_each_language_has_a_row() -> None:
    """Each folder of a client has a file in the table, except JavaScript, whose file is the one that gateways serve."""
    folders = {path.name for path in (ROOT / PAGE).parent.iterdir() if path.is_dir()}
    assert {file.partition("/")[0] for file, _ in ROWS if not file.startswith("..")} == folders - {"javascript"}


@pytest.mark.parametrize(("file", "lines"), ROWS)
def test_each_file_is_short_and_counted(file: str, lines: str) -> None:
    """A file has as many lines as the table says, at most 300."""
    assert len(((ROOT / PAGE).parent / file).read_text(encoding="utf-8").splitlines()) == int(lines) <= MAX_LINES
