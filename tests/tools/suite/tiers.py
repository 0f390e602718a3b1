"""The tiers of tests, by folder and mark, and the files that have tests of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]

UNITS = (
    "tests/protos",
    "tests/learner",
    "tests/actor_client",
    "tests/architecture",
    "tests/deploy",
    "tests/plugins",
    "tests/tools/suite",
)
"""Folders of unit tests; a mark moves single ones to another tier."""
SLOW = ("tests/e2e", "tests/tools/fuzz/test_targets.py")
"""Where every test without the mark `nightly` is slow."""
NIGHTLY = ("tests/nightly", "tests/tools")
"""Where all other tests are nightly."""

TIERS = {"units": "not slow and not nightly", "ci": "slow and not nightly", "smoke": "smoke", "nightly": "nightly"}
"""What is given to pytest's `-m`."""

_WHOLE = re.compile(r"^pytestmark = .*\bmark\.(slow|nightly)\b", re.MULTILINE)
_ANY = {name: re.compile(rf"\bmark\.{name}\b") for name in ("slow", "nightly", "smoke")}


def mark_of_folder(file: str) -> str:
    """Returns the mark that a file's place gives to its tests; empty if none.

    Args:
        file: Relative to the project, with slashes.
    """
    for mark, places in (("", UNITS), ("slow", SLOW), ("nightly", NIGHTLY)):
        if any(file == place or file.startswith(f"{place}/") for place in places):
            return mark
    return ""


def files_below(*places: str) -> list[str]:
    """Returns the test files below these places, sorted, relative to the project."""
    found: set[Path] = set()
    for place in map(ROOT.joinpath, places or ("tests",)):
        found.update(place.rglob("test_*.py") if place.is_dir() else [place])
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def tiers_of(file: str, text: str) -> Iterator[str]:
    """Yields the tiers that a file may have tests of, as far as its place and its text tell."""
    whole = _WHOLE.search(text)
    base = mark_of_folder(file) or (whole[1] if whole else "")
    if whole and whole[1] == "nightly":
        base = "nightly"
    marks = {base, *(name for name, pattern in _ANY.items() if pattern.search(text))}
    if "" in marks:
        yield "units"
    if "slow" in marks and base != "nightly":
        yield "ci"
    if "nightly" in marks:
        yield "nightly"
    if "smoke" in marks:
        yield "smoke"


def files_of(tier: str, files: Iterable[str] | None = None) -> list[str]:
    """Returns the files that have tests of a tier, without importing them."""
    return [
        file
        for file in (files_below() if files is None else files)
        if tier in tiers_of(file, (ROOT / file).read_text(encoding="utf-8"))
    ]
