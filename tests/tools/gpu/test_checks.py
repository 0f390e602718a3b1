"""Runs every check of the GPU suite on the CPU, where both sides must be equal."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests.tools.gpu.catalog import CHECKS
from tests.tools.gpu.check import Check, Setup
from tests.tools.gpu.devices import CPU

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.name)
def test_it_holds_on_a_cpu(check: Check, tmp_path: Path) -> None:
    """The check passes on a CPU and reports finite figures in one line."""
    outcome = check.run(Setup(CPU, tmp_path, rounds=2, seconds=0.05, shrinks=True))
    assert outcome.held, outcome.text
    assert "\n" not in outcome.text
    assert outcome.figures
    assert all(math.isfinite(value) for value in outcome.figures.values())
