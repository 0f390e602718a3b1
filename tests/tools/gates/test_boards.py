"""Tests the gate of shogi with a small game."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tools.gates.boards import shogi
from tests.tools.gates.gate import SHIPPED


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_trained_policy_plays_against_random_moves(tmp_path: Path) -> None:
    """A few updates of tic_tac_toe are played out in a tournament, and the rule judges its score."""
    gate = shogi()
    (arm,) = gate.arms
    assert arm.trained_by is not None
    small = replace(arm, run_file=SHIPPED / "connect-four.yaml", env="tic_tac_toe", budget_steps=20_000, envs=32)
    trained = arm.trained_by(small, 1, tmp_path / "run")
    assert trained.steps >= 20_000
    assert 0.3 < trained.against[0] <= 1.0
    verdict = gate.rule({arm.name: [replace(trained, against=(0.84,))]})
    assert not verdict.passed
    assert "asked for 85%; seed 1: 84.0% after" in verdict.text
    assert gate.rule({arm.name: [replace(trained, against=(0.85,))]}).passed
