"""Tests the curves of a run, which are limited in points and cover the whole run."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learner.service.view.history import COLUMNS, MAX_MARKS, History


def filled(samples: int, **settings: int) -> History:
    """Returns a history with one sample a second, whose return is its time."""
    history = History(**settings)
    for second in range(samples):
        history.add("A", float(second), {"mean_return": float(second)})
    return history


@given(samples=st.integers(1, 300), max_points=st.integers(2, 20))
def test_it_covers_the_whole_run_evenly(samples: int, max_points: int) -> None:
    """A run of any length has limited, evenly spaced points from the first second on."""
    view = filled(samples, max_points=max_points).view("A")
    assert view is not None
    times = view.columns["t"]
    assert times == [index * view.interval_seconds for index in range(len(times))]
    assert view.columns["mean_return"] == times
    assert 1 <= len(times) <= max_points
    assert samples - view.interval_seconds <= times[-1] if times[-1] is not None else False


def test_the_interval_doubles_when_it_is_full() -> None:
    """A full history keeps every second point."""
    full, over = filled(1000).view("A"), filled(1001).view("A")
    assert full is not None
    assert over is not None
    assert (full.interval_seconds, len(full.columns["t"])) == (1.0, 1000)
    assert (over.interval_seconds, len(over.columns["t"])) == (2.0, 501)


def test_marks_are_kept_and_restored() -> None:
    """Every curve has the newest marks, at times that continue after a restart."""
    history = filled(10)
    for second in range(MAX_MARKS + 1):
        history.mark(float(second), f"change {second}")
    later = History()
    later.load_state_dict(history.state_dict())
    later.load_marks(history.marks())
    later.mark(1.0, "after")
    view = later.view("A")
    assert view is not None
    assert (view.marks[0], view.marks[-1], len(view.marks)) == ((2.0, "change 2"), (10.0, "after"), MAX_MARKS)
    for damaged in ([1], [[None, "x"]], [[-1.0, "x"]]):
        with pytest.raises((TypeError, ValueError)):
            later.load_marks(damaged)


def test_only_what_is_new() -> None:
    """A viewer gets only points after a given time."""
    history = filled(10)
    later, none = history.view("A", 6.0), history.view("A", 9.0)
    assert later is not None
    assert none is not None
    assert later.columns["t"] == [7.0, 8.0, 9.0]
    assert none.columns == {name: [] for name in COLUMNS}


def test_a_restart_goes_on_with_the_curves() -> None:
    """A restart restores the curves of the checkpoint, and time continues."""
    before, after = filled(30, max_points=20), History(max_points=20)
    before.add("A", 30.0, {"loss": 1.0})
    after.load_state_dict(before.state_dict())
    kept = before.view("A")
    assert after.view("A") == kept
    assert kept is not None
    last = kept.columns["t"][-1]
    assert last is not None
    for second in (1.0, 2.0):
        after.add("A", second, {"mean_return": 7.0})
    gone_on = after.view("A", since=last)
    assert gone_on is not None
    assert gone_on.columns["t"] == [last + 1.0]  # an interval of two samples
    assert gone_on.columns["mean_return"] == [7.0]


@pytest.mark.parametrize(
    "curves",
    [
        {},
        {"interval": 1, "columns": {}},
        {"interval": 1, "columns": {"t": [1.0]}},
        {"interval": 0, "columns": dict.fromkeys(COLUMNS, (1.0,))},
        {"interval": 1, "columns": {**dict.fromkeys(COLUMNS, (1.0,)), "loss": []}},
        {"interval": 1, "columns": dict.fromkeys(COLUMNS, (2.0, 1.0))},
        {"interval": 1, "columns": dict.fromkeys(COLUMNS, (math.nan,))},
        {"interval": 1, "columns": dict.fromkeys(COLUMNS, (1.0,) * 1001)},
        {"interval": "many", "columns": dict.fromkeys(COLUMNS, (1.0,))},
        {"interval": 1, "columns": dict.fromkeys(COLUMNS, ("one",))},
        {"interval": 1, "columns": None},
        None,
    ],
)
def test_curves_that_were_not_saved_here_are_refused(curves: object) -> None:
    """Curves of a damaged checkpoint are refused, and the history stays unchanged."""
    history = filled(3)
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        history.load_state_dict({"A": curves})
    assert history.view("A") == filled(3).view("A")
