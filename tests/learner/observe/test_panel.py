"""Tests the panel as rich draws it."""

import io
import math
from dataclasses import replace

import pytest
from rich.console import Console

from learner.observe.behavior_state import BehaviorState
from learner.observe.panel import BARS, MAX_PANEL_CHARS, History, PanelPicture, sparkline
from learner.observe.view import Bottleneck, LessonView, RunState, RunView
from tests.learner.observe.views import behavior, run_view


def draw(view: RunView, *, picture: PanelPicture | None = None, width: int = 120, height: int = 50) -> str:
    """Returns the characters of the panel."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print((picture or PanelPicture()).draw(view, height))
    return capture.get()


def test_the_panel_shows_the_run_and_each_behavior() -> None:
    """The panel shows name, state, address, actors, steps, return, version, queue and books."""
    shown = draw(run_view(behavior()))
    for part in (
        "cartpole-1",
        "training",
        "127.0.0.1:50051",
        "generation 3",
        "0:01:23",
        "2 actors",
        "bottleneck  learner   learner 97%   actors 12%   network 3%",
        "CartPole",
        "98,304 / 200,000",
        "4,123/s",
        "0:00:24 left",
        "312.4 of 475.0",
        "480 episodes",
        "version 24",
        "lag 0.40",
        "2.3e-07",
        "50% 128.0 MiB",
        "dropped 96 (stale, …)",
    ):
        assert part in shown, f"{part} is missing in\n{shown}"
    assert "last error" not in shown


def test_without_a_verdict_the_panel_says_why() -> None:
    """Without a verdict the panel shows the reason."""
    silent = replace(run_view(behavior()), bottleneck=Bottleneck(text="the run is paused"))
    assert "bottleneck  the run is paused" in draw(silent)
    assert "bottleneck" not in draw(run_view())


def test_lessons_are_shown_where_there_is_a_curriculum() -> None:
    """Lessons are shown for parameters with several; names are escaped."""
    lessons = (LessonView("mass", 1, 3, "mid\x1bdle"), LessonView("wind", 0, 1, "wind"))
    shown = draw(replace(run_view(behavior()), lessons=lessons))
    assert "lessons     mass 2/3 mid\\x1bdle" in shown
    assert "wind" not in shown
    assert "lessons" not in draw(replace(run_view(behavior()), lessons=lessons[1:]))


def test_the_return_leaves_a_trail() -> None:
    """Each view adds the return to the sparkline."""
    picture = PanelPicture()
    for step in range(8):
        shown = draw(run_view(behavior(mean_return=float(step)), BehaviorState("New")), picture=picture)
    assert BARS in shown
    assert "-   0 episodes" in shown


def test_text_from_outside_is_text() -> None:
    """Markup and control characters in names and errors are shown as text."""
    shown = draw(run_view(behavior("[red]x[/red]\x1b[2J"), last_error="[bold]lost\x07\nactor"))
    assert "[red]x[/red]\\x1b[2J" in shown
    assert "last error  [bold]lost\\x07\\nactor" in shown


def test_the_panel_fits_every_terminal() -> None:
    """No line exceeds the terminal, and in a low one behaviors shrink to a line each."""
    many = run_view(*(behavior(f"Behavior{number}") for number in range(5)), last_error="x" * 500)
    for width in (20, 60, 80, 300):
        lines = draw(many, width=width).splitlines()
        assert max(len(line) for line in lines) <= min(width, MAX_PANEL_CHARS)
    low = draw(many, height=20).splitlines()
    assert len(low) <= 12
    assert sum("Behavior" in line for line in low) == 5


def test_odd_states_draw() -> None:
    """Every state, no behavior and numbers out of bounds are drawn."""
    for state in RunState:
        assert state.value in draw(run_view(state=state))
    over = BehaviorState("Over", env_steps_trained=11, max_steps=10, queued_bytes=9, queue_capacity_bytes=4)
    shown = draw(run_view(over, BehaviorState("Empty", steps_per_second=float("nan"))))
    assert "11 / 10" in shown
    assert "225%" in shown
    assert "has not declared" in draw(run_view(state=RunState.WAITING), width=80)
    waiting = draw(replace(run_view(state=RunState.WAITING), actors=0), width=80)
    assert "rollcast-actor gym --env ENVIRONMENT --learner 127.0.0.1:50051" in waiting
    waiting = draw(replace(run_view(state=RunState.WAITING), actors=0, tls=True), width=80)
    assert "DIR: made by rollcast-actor join DIR" in waiting
    assert "rollcast-actor gym --env ENVIRONMENT --certs DIR" in waiting


def test_bars_span_the_range() -> None:
    """The lowest point is the lowest bar, and the highest the highest."""
    assert sparkline((0.0, 1.0)) == BARS[0] + BARS[-1]
    assert sparkline(tuple(float(i) for i in range(8))) == BARS


def test_bars_of_nothing_and_of_a_constant() -> None:
    """No values draw nothing, and a constant draws a flat line."""
    assert sparkline(()) == ""
    assert sparkline((3.0, 3.0)) == BARS[0] * 2


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 1000, 4097])
def test_a_history_of_any_length_fits_and_keeps_its_shape(count: int) -> None:
    """Any number of values fits the capacity and keeps the curve's shape."""
    history = History(8)
    for value in range(count):
        history.add(float(value))
    points = history.points
    assert 1 <= len(points) <= 8
    assert list(points) == sorted(points)
    assert points[-1] >= (count - 1) / 2


def test_points_are_means_of_equal_shares() -> None:
    """Each full point is the mean of equally many consecutive values."""
    history = History(4)
    for value in range(8):
        history.add(float(value))
    assert history.points == (1.5, 5.5)


def test_what_is_not_finite_is_left_out() -> None:
    """NaN draws no bar."""
    history = History()
    history.add(math.nan)
    assert history.points == ()


@pytest.mark.parametrize("capacity", [0, 3, -2])
def test_capacity_must_be_even(capacity: int) -> None:
    """The capacity must be even, because neighbors are merged in pairs."""
    with pytest.raises(ValueError, match=f"got {capacity}"):
        History(capacity)
