"""Tests which failures are repeated, what is flaky, and the closing line."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.tools.suite.outcome import (
    Failure,
    Outcome,
    flaky_lines,
    passed_when_repeated,
    read_results,
    refusal,
    write_result,
)

ONE, TWO = (Failure(f"tests/learner/test_{name}.py::test_it", f"late: {name}") for name in ("one", "two"))


def ran(passed: int, *failures: Failure) -> Outcome:
    """Returns what became of a run."""
    return Outcome(Counter({"passed": passed, "failed": len(failures)}), list(failures), seconds=2.0)


def test_few_failures_are_repeated() -> None:
    """Up to three tests are repeated, those of earlier parts included; a test that fails twice counts once."""
    torn = Failure(ONE.test, "left something", "error", "teardown")
    assert refusal([ONE, torn, TWO, Failure("c", "")]) == ""
    assert refusal([ONE, TWO], already=1) == ""
    assert "3 may be flaky" in refusal([ONE, TWO], already=2)


@pytest.mark.parametrize(
    "test",
    [
        "tests/learner/service/ingest/test_ledger.py::test_steps",
        "tests/e2e/test_lockstep.py::test_rounds[3]",
        "tests/e2e/test_restart.py::test_the_books_balance",
        "tests/nightly/chaos/test_checker.py::test_gaps",
    ],
)
def test_a_failure_of_the_books_is_never_repeated(test: str) -> None:
    """Books, ledger, checker and lock-step are never flaky, whatever else failed."""
    assert test in refusal([ONE, Failure(test, "off by one")])


def test_what_cannot_be_loaded_is_not_repeated() -> None:
    """An error of collection is no flake."""
    assert "cannot be loaded" in refusal([Failure("tests/test_x.py", "SyntaxError", "error", "collect")])


def test_what_passes_the_second_time_is_flaky() -> None:
    """Only tests that ran again and passed are flaky."""
    assert passed_when_repeated([ONE, TWO], ran(2), 0) == [ONE, TWO]
    assert passed_when_repeated([ONE, TWO], ran(1, TWO), 1) == [ONE]
    assert passed_when_repeated([ONE, TWO], ran(1), 0) == [], "one of them did not run"
    assert passed_when_repeated([ONE, TWO], ran(2), 2) == [], "interrupted"


def test_flaky_tests_count_as_passed() -> None:
    """The closing line has them among the passed; a test with a broken teardown is not counted twice."""
    torn = Failure(TWO.test, "left something", "error", "teardown")
    outcome = Outcome(Counter(passed=5, failed=1, error=1, deselected=7), [ONE, torn], seconds=12.345)
    assert outcome.closing_line() == "===== 1 failed, 5 passed, 1 error in 12.35s ====="
    outcome.forgive([ONE, torn])
    assert outcome.closing_line() == "===== 6 passed in 12.35s ====="
    assert outcome.failures == []
    assert flaky_lines(outcome.flaky)[0] == f"FLAKY {ONE.test} late: one"
    assert flaky_lines(outcome.flaky)[-1] == f"| `{TWO.test}` | left something |"


def test_parts_are_added(tmp_path: Path) -> None:
    """The results of parts add up to one outcome, flaky tests included."""
    first = ran(3, ONE)
    first.forgive([ONE])
    write_result(tmp_path / "results", "units", first)
    write_result(tmp_path / "results", "ci", ran(10, TWO))
    total, parts = read_results(tmp_path / "results")
    assert parts == {"units", "ci"}
    assert total.closing_line() == "===== 1 failed, 14 passed in 4.00s ====="
    assert [each.test for each in total.flaky] == [ONE.test]
