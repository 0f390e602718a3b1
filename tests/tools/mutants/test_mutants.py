"""Tests the check with mutants on a module of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tools.mutants.__main__ import importers, mirrored, own_files
from tests.tools.mutants.mutations import mutants
from tests.tools.mutants.report import Result, candidates, read

MODULE = '''"""A module."""

LIMIT = 3


class Counter:
    """Counts."""

    def __init__(self, log):
        self._log = log
        self.count = 0

    @property
    def full(self):
        """True at the limit."""
        return self.count >= LIMIT

    def add(self, steps: int = 1) -> int:
        """Adds steps."""
        assert steps is not None, "no steps"
        if steps < 0:
            raise ValueError(f"{steps} steps")
        self._log.info("added", steps=steps + 1)
        while steps:
            steps -= 1
            self.count += 1
        return self.count


def unreached(first):
    return first + 1
'''
TESTS = """
import logging
from unittest import mock

import pytest

from counted import Counter


@pytest.fixture(scope="module")
def shared():
    counter = Counter(mock.Mock())
    counter.add(3)
    return counter


def test_full(shared):
    assert shared.full


@pytest.mark.parametrize("steps", [1, 2])
def test_add(steps):
    counter = Counter(mock.Mock())
    assert counter.add(steps) == steps
    assert not counter.full


def test_add_again():
    assert Counter(mock.Mock()).add(2) == 2


def test_refused():
    with pytest.raises(ValueError):
        Counter(None).add(-1)


def test_broken():
    assert Counter(None).full
"""


def test_mutants_differ_where_a_mistake_can_matter() -> None:
    """Annotations, docstrings, defaults, assertions, log calls and messages of errors stay as they are."""
    made = [mutant for make in mutants(MODULE) if (mutant := make()) is not None]
    lines = MODULE.splitlines()
    changed = {lines[mutant.line - 1].strip() for mutant in made}
    assert changed == {
        "self._log = log",
        "self.count = 0",
        "return self.count >= LIMIT",
        "if steps < 0:",
        'raise ValueError(f"{steps} steps")',
        "while steps:",
        "steps -= 1",
        "self.count += 1",
        "return self.count",
        "return first + 1",
    }
    assert len({mutant.code for mutant in made}) == len(made)
    assert all(mutant.line in mutant.lines for mutant in made)


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The result of the module above."""
    folder = tmp_path_factory.mktemp("counted")
    (folder / "counted.py").write_text(MODULE)
    (folder / "test_counted.py").write_text(TESTS)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  slow: slow\n  nightly: nightly\npythonpath = .\n")
    command = [sys.executable, "-m", "tests.tools.mutants.worker", "counted.py", "0", "1", "found.jsonl"]
    environment = {**os.environ, "PYTHONPATH": str(Path.cwd())}
    subprocess.run([*command, *["test_counted.py"] * 2], cwd=folder, env=environment, check=True)
    assert (folder / "counted.py").read_text() == MODULE
    return read("counted.py", folder / "found.jsonl")


def changed(ran: list[dict[str, Any]]) -> set[tuple[int, str]]:
    """Returns the lines of mutants, and what they say."""
    return {(each["line"], line[1:].strip()) for each in ran for line in each["diff"].splitlines() if line[0] == "+"}


def test_survivors_are_what_no_test_notices(result: Result) -> None:
    """A mutant that no test executes survives, and one whose loop never ends is caught."""
    assert [test.rpartition("::")[2] for test in result.broken] == ["test_broken"]
    assert 20 <= len(result.ran) <= result.made
    survivors = changed(result.survivors)
    assert {line for line, _ in survivors} == {21, 31}  # no test adds 0 steps
    assert {(21, "if steps <= 0:"), (31, "return first - 1")} <= survivors
    assert any(each["stopped"] for each in result.ran if "steps" in each["diff"])


def test_every_failing_test_of_a_mutant_is_known(result: Result) -> None:
    """A mutant of the count fails all tests that look at it, through a shared fixture too."""
    (mutant,) = [each for each in result.ran if "+            self.count -= 1" in each["diff"]]
    names = {test.rpartition("::")[2] for test in mutant["failed"]}
    assert names == {"test_full", "test_add[1]", "test_add[2]", "test_add_again"}


def test_candidates_are_the_tests_that_others_replace(result: Result) -> None:
    """A test is a candidate if others catch all that it catches."""
    found = {each.test.rpartition("::")[2]: each.together for each in candidates([result], {"test_counted.py"})}
    assert sorted(found) == ["test_add", "test_add_again"]
    assert sorted(found.values()) == [False, True]  # not both


def test_the_tests_of_a_module_are_found() -> None:
    """A module's own tests are the file of its name, or else those beside it that import it."""
    assert mirrored("protos/rollcast/tensors.py") == Path("tests/protos/test_tensors.py")
    assert own_files("learner/service/ingest/ledger.py") == ["tests/learner/service/ingest/test_ledger.py"]
    assert own_files("learner/training/curriculum/lessons.py") == ["tests/learner/training/curriculum/test_lessons.py"]
    assert "tests/learner/service/ingest/test_judgements.py" in importers("learner/service/ingest/ledger.py")
