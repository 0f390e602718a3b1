"""Tests the command lines of the runner and of the nightly parts."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from tests.nightly.stack.machine import NEEDED
from tests.tools.suite import nightly
from tests.tools.suite.__main__ import chosen_tests, main
from tests.tools.suite.outcome import Failure, Outcome, write_result
from tests.tools.suite.tiers import ROOT, TIERS

FILE = "tests/tools/suite/test_command_line.py"


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        (["-q", "-k", "ledger"], []),
        (["-k", "tests", FILE, "-x"], [FILE]),
        (["tests/protos", f"{FILE}::test_it[a b]"], ["tests/protos", f"{FILE}::test_it[a b]"]),
        (["--ignore", "tests/protos"], []),
    ],
)
def test_files_are_told_from_options(words: list[str], chosen: list[str]) -> None:
    """Files, folders and ids of tests are found among pytest's arguments, values of options are not."""
    assert chosen_tests(words) == (chosen, [word for word in words if word not in chosen])


def test_chosen_files_take_the_place_of_a_tier(capsys: pytest.CaptureFixture[str]) -> None:
    """Chosen files are run in place of all, and a place without such tests is an error."""
    assert main(["units", "--list", "--", "-q", FILE]) == 0
    assert capsys.readouterr().out.split() == [FILE]
    assert main(["units", "tests/nightly"]) == 5
    assert main(["ci", "tests/e2e", "--without", "tests/e2e/test_turns.py", "--list"]) == 0
    found = capsys.readouterr().out.split()
    assert "tests/e2e/test_turns.py" not in found
    assert "tests/e2e/test_stops.py" in found


@pytest.mark.parametrize(("flaky", "code"), [(0, 0), (3, 0), (4, 1)])
def test_the_total_accepts_few_flaky_tests(
    flaky: int, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """More than three flaky tests in all parts together make a call red; the last line is pytest's closing line."""
    outcome = Outcome(flaky=[Failure(f"test_{number}", "late") for number in range(flaky)], seconds=1.0)
    outcome.counts["passed"] = 5
    write_result(tmp_path / "results", "units", outcome)
    write_result(tmp_path / "results", "ci", Outcome(outcome.counts, seconds=2.5))
    assert main(["total", str(tmp_path / "results"), "units", "ci"]) == code
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "===== 10 passed in 3.50s ====="
    assert sum(line.startswith("FLAKY ") for line in lines) == flaky


def test_a_part_that_did_not_end_is_red(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A part without a result makes the total fail, whatever the others did."""
    write_result(tmp_path / "results", "units", Outcome())
    assert main(["total", str(tmp_path / "results"), "units", "ci"]) == 1
    assert "ci did not come to an end" in capsys.readouterr().out


def test_an_unknown_part_is_refused_with_the_known_ones() -> None:
    """A misspelled nightly part ends with the list of parts, before anything runs."""
    with pytest.raises(SystemExit, match="no such part: brwser; there are units, mutants, tools"):
        nightly.main(["soak", "brwser"])


def test_the_table_of_packages_names_known_parts() -> None:
    """Each line has parts that exist, and the stack's parts install what its tests look for."""
    lines = [line.split() for line in (ROOT / ".ci/packages").read_text().splitlines() if not line.startswith("#")]
    signs = defaultdict(set)
    for parts, sign, _ in lines:
        for part in parts.split(","):
            signs[part].add(sign)
    assert set(signs) <= {*nightly.PARTS, *TIERS}
    assert set(NEEDED) - {"docker"} <= signs["stack"] & signs["smoke"]
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    assert re.findall(
        r"^\| `([a-z]+)` \|", contributing.partition("| nightly part |")[2].partition("\n\n")[0], re.MULTILINE
    ) == [*nightly.PARTS]
