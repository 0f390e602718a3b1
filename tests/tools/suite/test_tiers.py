"""Tests which tier a test is in."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.suite.tiers import ROOT, TIERS, files_below, files_of, mark_of_folder, tiers_of

MARKED = "import pytest\n@pytest.mark.{}\ndef test_it():\n    pass\ndef test_that():\n    pass\n"
WHOLE = "import pytest\npytestmark = pytest.mark.{}\ndef test_it():\n    pass\n"


@pytest.mark.parametrize(
    ("file", "text", "tiers"),
    [
        ("tests/learner/test_x.py", "", {"units"}),
        ("tests/learner/test_x.py", MARKED.format("slow"), {"units", "ci"}),
        ("tests/learner/test_x.py", MARKED.format("nightly"), {"units", "nightly"}),
        ("tests/learner/test_x.py", WHOLE.format("slow"), {"ci"}),
        ("tests/learner/test_x.py", WHOLE.format("slow") + MARKED.format("nightly"), {"ci", "nightly"}),
        ("tests/e2e/test_x.py", "", {"ci"}),
        ("tests/e2e/test_x.py", WHOLE.format("nightly"), {"nightly"}),
        ("tests/tools/fuzz/test_targets.py", "", {"ci"}),
        ("tests/tools/suite/test_tiers.py", "", {"units"}),
        ("tests/tools/bench/test_x.py", MARKED.format("slow"), {"nightly"}),
        ("tests/nightly/stack/test_x.py", MARKED.format("smoke"), {"nightly", "smoke"}),
    ],
)
def test_the_tiers_of_a_file(file: str, text: str, tiers: set[str]) -> None:
    """A file has tests of the tier of its folder, and of those that its marks name."""
    assert set(tiers_of(file, text)) == tiers


def test_every_test_file_is_in_a_tier() -> None:
    """Every folder of tests belongs to a tier, and no test file has a name that the runner does not look for."""
    files = files_below()
    assert {file for tier in TIERS for file in files_of(tier, files)} == set(files)
    assert [file for file in files if not file.startswith("tests/") or "results" in Path(file).parts] == []
    assert list((ROOT / "tests").rglob("*_test.py")) == []
    assert mark_of_folder("tests/e2e/test_x.py") == "slow"


@pytest.mark.nightly
@pytest.mark.parametrize("tier", ["units", "ci", "nightly"])
def test_pytest_finds_tests_of_a_tier_in_no_other_file(tier: str) -> None:
    """The files that the runner gives to pytest are all in which pytest itself finds tests of the tier."""
    # Only `make mutants` installs what its tests import.
    every = [file for file in files_below() if not file.startswith("tests/tools/mutants/")]
    words = [
        sys.executable,
        "-m",
        "pytest",
        "--collect-only",
        "-qq",
        "-p",
        "no:cacheprovider",
        "-m",
        TIERS[tier],
        *every,
    ]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {line.rpartition(": ")[0] for line in done.stdout.splitlines() if re.fullmatch(r"tests/\S+: \d+", line)}
    given = set(files_of(tier, every))
    assert found - given == set()
    assert len(found) >= 0.9 * len(given)
