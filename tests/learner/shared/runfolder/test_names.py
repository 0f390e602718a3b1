"""Tests how behavior names become file names."""

from __future__ import annotations

from pathlib import PurePosixPath, PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.shared.runfolder.names import safe_name

HOSTILE = [
    "My Behavior?team=0",
    "../x",
    "..",
    ".",
    "",
    " ",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "C:\\x",
    "nul\0byte",
    "line\nbreak",
    "run_state.pt",
    "run_logs",
    "generation",
    "A.onnx",
    ".hidden",
    "x" * 128 + "é",
    "日" * 128,
    "\udcff",
]


@pytest.mark.parametrize("name", ["CartPole", "My Behavior", "3DBall", "Größe", "a-b_c.d", "Striker (blue)"])
def test_ordinary_names_stay(name: str) -> None:
    """A name that can be a file name is unchanged."""
    assert safe_name(name) == name


@pytest.mark.parametrize("name", HOSTILE)
def test_other_names_are_changed(name: str) -> None:
    """A name that cannot be a file name is replaced."""
    assert safe_name(name) != name


@given(st.one_of(st.text(max_size=200), st.sampled_from(HOSTILE)))
def test_every_name_becomes_one_path_component(name: str) -> None:
    """Every name becomes one path component on all systems, with space for a step."""
    safe = safe_name(name)
    assert PurePosixPath(safe).name == safe
    assert PureWindowsPath(safe).name == safe
    assert not safe.startswith(".")
    assert safe.isprintable()
    assert len(f"{safe}-{10**12}.onnx".encode()) <= 255


@given(st.lists(st.text(max_size=20), unique=True, min_size=2, max_size=20))
def test_no_two_names_share_a_folder(names: list[str]) -> None:
    """Different behaviors have different folders."""
    assert len({safe_name(name) for name in names}) == len(names)
