"""Tests names of behaviors and runs as file names."""

from __future__ import annotations

import pytest

from learner.shared.settings.names import name_problem, without_team


@pytest.mark.parametrize("name", ["CartPole", "3DBall", "My Behavior", "a.b", "Ünïcode", "run-7_x"])
def test_ordinary_names_are_fine(name: str) -> None:
    """Letters, digits, inner spaces and dots, and hyphens are accepted."""
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "  ", "..", ".hidden", "a/b", "a\\b", "x\n", "x\0y", "n" * 129, "Team?team=0", "c:"]
)
def test_names_that_are_no_file_names_are_refused(name: str) -> None:
    """Separators, leading dots, control characters and long names are refused."""
    assert name_problem(name) is not None


def test_the_team_is_not_part_of_the_name() -> None:
    """A behavior name has no team."""
    assert without_team("Striker?team=1") == "Striker"
    assert without_team("Striker") == "Striker"
