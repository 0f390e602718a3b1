"""Tests runs of several processes of pytest, with a small suite of their own."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.suite.running import NOTHING_COLLECTED, exit_code, side_by_side

PASSES = "def test_it():\n    pass\n"
FAILS = "def test_that():\n    assert 1 == 2, 'numbers differ'\n"


def commands(folder: Path, *texts: str) -> list[list[str]]:
    """Returns a command for each text of a test file."""
    found = []
    for number, text in enumerate(texts):
        file = folder / f"test_{number}.py"
        file.write_text(text)
        words = [
            "-p",
            "tests.tools.suite.plugin",
            "-p",
            "no:cacheprovider",
            "--rootdir",
            str(folder),
            "-c",
            "/dev/null",
        ]
        found.append([sys.executable, "-m", "pytest", *words, "--import-mode=importlib", str(file)])
    return found


@pytest.mark.parametrize(
    ("codes", "may_be_empty", "code"),
    [
        ([0, 0], False, 0),
        ([0, NOTHING_COLLECTED], False, NOTHING_COLLECTED),
        ([0, NOTHING_COLLECTED], True, 0),
        ([NOTHING_COLLECTED, NOTHING_COLLECTED], True, NOTHING_COLLECTED),
        ([0, 1], True, 1),
        ([0, -11], False, 139),
    ],
)
def test_the_exit_code_of_all(codes: list[int], may_be_empty: bool, code: int) -> None:
    """Only if all passed is it 0; a process without tests is an error, unless someone chose the tests."""
    assert exit_code(codes, may_be_empty=may_be_empty) == code


@pytest.mark.slow
def test_failures_are_shown_whole_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines have the number of their process; at the end comes the failure's section, and counts are added."""
    outcome, code = side_by_side(commands(tmp_path, PASSES, PASSES + FAILS), may_be_empty=False)
    said = capsys.readouterr().out
    assert code == 1
    assert outcome.counts == {"passed": 2, "failed": 1}
    (failure,) = outcome.failures
    assert failure.test.endswith("test_1.py::test_that")
    assert "numbers differ" in failure.error
    assert re.search(r"^1 \| \S*test_0\.py \.", said, re.MULTILINE)
    assert "\nE       AssertionError: numbers differ" in said.rpartition("FAILURES")[2]


@pytest.mark.slow
def test_a_process_that_dies_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A process that ends before pytest does makes the run fail, and its last lines are shown."""
    kills = "import os\ndef test_it():\n    os.kill(os.getpid(), 9)\n"
    outcome, code = side_by_side(commands(tmp_path, PASSES, kills), may_be_empty=True)
    assert code == 137
    assert outcome.counts["passed"] == 1
    assert "shard 2 ended with exit code -9" in capsys.readouterr().out


@pytest.mark.slow
def test_the_processor_time_of_what_a_test_starts_is_measured(tmp_path: Path) -> None:
    """The cost of a file includes the processes that its tests started, also while these still run."""
    busy = "import time\nwhile time.process_time() < 0.5:\n    pass\nprint(flush=True)\ntime.sleep(60)\n"
    text = f"""
import subprocess, sys
started = []
def test_it():
    started.append(subprocess.Popen([sys.executable, "-c", {busy!r}], stdout=subprocess.PIPE))
    started[0].stdout.readline()
def teardown_module():
    started[0].kill()
    started[0].communicate()
"""
    (words,) = commands(tmp_path, text)
    outcome, code = side_by_side([[*words, "--suite-costs"]], may_be_empty=False)
    assert code == 0
    assert sum(outcome.costs.values()) > 0.4


def test_a_thread_that_a_test_left_does_not_hold_the_run() -> None:
    """A test that fails before it ends its thread must not keep the suite until the limit of the machine; its code is kept."""
    program = (
        "import threading; from tests.tools.suite.plugin import end_if_held\n"
        "threading.Thread(target=threading.Event().wait, name='left').start()\n"
        "end_if_held(3, 1.0)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    assert (ended.returncode, ended.stderr) == (3, "ended: threads that tests left held the process: left\n")
