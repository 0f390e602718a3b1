"""Tests the command line of the GPU suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

from tests.tools.bench.processes import REPOSITORY
from tests.tools.gpu import cli
from tests.tools.gpu.catalog import CHECKS
from tests.tools.gpu.check import Check, Outcome, Setup


def _breaks(setup: Setup) -> Outcome:
    raise RuntimeError("the first line\nthe second line")


MADE = [
    Check("breaks", "nothing", _breaks),
    Check("fails", "nothing", lambda _: Outcome(held=False, text="is 3 apart")),
    Check("holds", "nothing", lambda setup: Outcome(held=True, text=str(setup.folder.exists()), figures={"rows": 3.0})),
]


def test_checks_have_names_for_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Each check has a unique name, and `--list` shows all."""
    assert max(Counter(check.name for check in CHECKS).values()) == 1
    assert cli.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [check.name for check in CHECKS]


def test_checks_are_chosen_by_the_beginnings_of_their_names(capsys: pytest.CaptureFixture[str]) -> None:
    """Checks are selected by the beginnings of their names; an unknown one is an error that lists all."""
    assert [check.name for check in cli._chosen(["replay", "speed"])] == ["replay", "speed-mlp", "speed-nature"]
    assert cli._chosen([]) == list(CHECKS)
    assert cli.main(["nothing"]) == 2
    assert "there is no check 'nothing'; checks: staging, updates-ppo" in capsys.readouterr().err


def test_a_check_that_fails_or_breaks_off_costs_the_others_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed check is a line and exit status 1; the others still run and the file has all."""
    options = cli._parser().parse_args(["--device", "cpu", "--out", str(tmp_path / "gpu")])
    assert cli._run_all(MADE, options) == 1
    shown = capsys.readouterr()
    assert [" ".join(line.split()) for line in shown.out.splitlines()] == [
        "breaks FAILED RuntimeError: the first line",
        "fails FAILED is 3 apart",
        "holds ok True",
    ]
    assert "1 of 3 checks held" in shown.err
    found = json.loads((tmp_path / "gpu" / "gpu.json").read_text(encoding="utf-8"))
    assert [(check["check"], check["held"]) for check in found["checks"]] == [
        ("breaks", False),
        ("fails", False),
        ("holds", True),
    ]
    assert found["checks"][2]["figures"] == {"rows": 3.0}
    assert torch.__version__ in found["machine"]
    assert cli._run_all(MADE[2:], options) == 0


@pytest.mark.slow
def test_without_cuda_it_says_so() -> None:
    """Without CUDA the suite prints one line and exits with 77."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.gpu", "staging"],
        cwd=REPOSITORY,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 77
    assert re.fullmatch(r"no CUDA: torch \S+ .* NVIDIA GPU.*\n", done.stderr)
    assert not done.stdout
