"""How far a run is, as a file."""

import json
import os
from pathlib import Path

import pytest

from learner.observe.summary import (
    PROGRESS_FILE,
    best_returns,
    finite,
    progress_document,
    read_small_json,
    write_progress,
)
from learner.observe.view import BehaviorView, RunState, RunView


def test_it_says_how_far_a_run_is(tmp_path: Path) -> None:
    """State, steps and returns of each behavior; the best return outlives a restart."""
    behaviors = (BehaviorView("Walker", env_steps_trained=500, mean_return_100=3.0), BehaviorView("Idle"))
    view = RunView("run", RunState.TRAINING, 2, 10.0, "127.0.0.1:1", behaviors=behaviors)
    write_progress(tmp_path, progress_document(view, {"Walker": 7.5}, 1000.0))
    found = read_small_json(tmp_path / PROGRESS_FILE)
    assert (found["state"], found["generation"], found["time_seconds"]) == ("training", 2, 1000.0)
    walker = found["behaviors"]["Walker"]
    assert (walker["env_steps_trained"], walker["mean_return"], walker["best_return"]) == (500, 3.0, 7.5)
    assert best_returns(tmp_path) == {"Walker": 7.5}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000, b'{"behaviors": 3}', b'{"behaviors": {"a": 1}}']
)
def test_a_damaged_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    """Whatever stands in it, there is no error."""
    (tmp_path / PROGRESS_FILE).write_bytes(content)
    assert best_returns(tmp_path) == {}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """A pipe in the place of the file keeps nobody waiting."""
    os.mkfifo(tmp_path / PROGRESS_FILE)
    assert read_small_json(tmp_path / PROGRESS_FILE) == {}


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3, 3.0), (0.5, 0.5), (True, None), ("3", None), (None, None), (float("nan"), None), (10**400, None)],
)
def test_numbers_from_files(value: object, expected: float | None) -> None:
    """Only what is a finite number counts as one."""
    assert finite(value) == expected
    assert json.dumps(expected)
