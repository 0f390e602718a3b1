"""Tests names from outside, which become file names and labels."""

from __future__ import annotations

import pytest
from rollcast import limits


@pytest.mark.parametrize("name", ["CartPole", "3D Ball", "Läufer", "a", "x" * 128, "ALE-Pong-v5", "semi;colon"])
def test_ordinary_behavior_names_pass(name: str) -> None:
    """Inner spaces, leading digits and other alphabets are accepted."""
    assert limits.behavior_name_fault(name) is None


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "a/b", "a\\b", "a?team=1", "..", ".hidden", " a", "a ", "a\nb", "a\0b", "\u202egnp"]
)
def test_names_that_could_leave_the_run_folder_are_refused(name: str) -> None:
    """Separators, leading dots, control and direction characters are refused."""
    assert limits.behavior_name_fault(name)


@pytest.mark.parametrize("name", ["length", "obs/state", "final_obs/a.b-c_D", "extra/" + "x" * 64, "x" * 64])
def test_column_names(name: str) -> None:
    """A column name has at most one prefix and 64 characters."""
    assert limits.COLUMN_NAME_PATTERN.fullmatch(name)


@pytest.mark.parametrize(
    "name", ["", "obs/", "obs/a/b", "x" * 65, "obs/" + "x" * 65, "obs/ä", "obs/a\n", "Obs/a", "/a"]
)
def test_other_column_names_do_not_match(name: str) -> None:
    """Column names like paths, or with control characters, are refused."""
    assert not limits.COLUMN_NAME_PATTERN.fullmatch(name)
