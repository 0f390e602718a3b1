"""Tests that each reviewed fault names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROW = re.compile(r"^\| (R\d+) \| .* \| (`.*`) \|$", re.MULTILINE)


def test_each_reviewed_fault_has_tests() -> None:
    """The table in SECURITY.md counts from R1, and each of its tests is in the file that it names."""
    rows = dict(ROW.findall((ROOT / "SECURITY.md").read_text(encoding="utf-8")))
    assert list(rows) == [f"R{number}" for number in range(1, max(25, len(rows)) + 1)]
    for fault, cell in rows.items():
        path = ""
        for name in re.findall(r"`([^`]*)`", cell):
            path, _, test = (name if not name.startswith("::") else path + name).partition("::")
            assert re.search(rf"def {test}\(", (ROOT / path).read_text(encoding="utf-8")), f"{fault}: {name}"
