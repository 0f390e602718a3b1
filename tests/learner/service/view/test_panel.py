"""Tests the panel as rich draws it."""

import io
import math
import re
from dataclasses import replace

import pytest
from rich.console import Console

from learner.service.view.panel import BARS, MAX_PANEL_CHARS, History, PanelPicture, sparkline
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.terminal import render_status
from learner.shared.observe.view import LessonView, LockstepView, RunState, RunView, StatusView, TroubleView
from tests.learner.shared.observe.views import behavior, run_view


def draw(view: RunView, *, picture: PanelPicture | None = None, width: int = 120, height: int = 50) -> str:
    """Returns the characters of the panel."""
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None)
    with console.capture() as capture:
        console.print((picture or PanelPicture()).draw(view, height))
    return capture.get()


def test_the_panel_shows_the_run_and_each_behavior() -> None:
    """The panel shows name, state, address, actors, verdict, steps, returns with their trail, version, queue and books."""
    picture = PanelPicture()
    for step in range(8):
        shown = draw(run_view(behavior(mean_return=float(step)), BehaviorState("New")), picture=picture)
    for part in (
        *("cartpole-1", "training", "127.0.0.1:50051", "generation 3", "0:01:23", "2 actors", "CartPole"),
        *(
            "bottleneck  learner 97%   actors 12%   network 3%   learner-bound: so it is",
            "98,304 / 200,000",
            "4,123/s",
            "0:00:24 left",
        ),
        *(
            "7.00 of 475.0",
            BARS,
            "480 episodes",
            "version 24",
            "lag 0.40",
            "2.3e-07",
            "50% 128.0 MiB",
            "-   0 episodes",
        ),
        "dropped 96 (stale 90, bad_action 6)",
        "received 98,400 = trained 98,304 + dropped 96 + queued 0 + lost 0",
    ):
        assert part in shown, f"{part} is missing in\n{shown}"
    assert "last error" not in shown


def test_the_panel_has_the_rows_of_status() -> None:
    """Each label and number of ``rollcast status`` about run and behaviors is in the panel; it adds bar and trail."""
    view = replace(
        run_view(behavior(), last_error="lost"),
        page="http://127.0.0.1:9464/",
        lessons=(LessonView("mass", 1, 3, "middle"),),
        lockstep=LockstepView(2, 2, 7, 5, 64),
    )
    shown = " ".join(draw(view).split())
    said = render_status(StatusView(view, (), "1"), view.page)
    for line in said.replace("no actor is connected\n", "").splitlines():
        for part in re.split(" {2,}", line.strip()):
            assert part[:60] in shown, f"{part} is missing in\n{shown}"


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


def test_bars() -> None:
    """The lowest point is the lowest bar, the highest the highest; a constant is flat, and no values draw nothing."""
    assert sparkline(tuple(float(i) for i in range(8))) == BARS
    assert sparkline((3.0, 3.0)) == BARS[0] * 2
    assert sparkline(()) == ""


@pytest.mark.parametrize("count", [1, 7, 8, 9, 100, 1000, 4097])
def test_a_history_of_any_length_fits_and_keeps_its_shape(count: int) -> None:
    """Any number of values fits the capacity and keeps the curve's shape; NaN is left out."""
    history = History(8)
    for value in range(count):
        history.add(float(value))
        history.add(math.nan)
    points = history.points
    assert 1 <= len(points) <= 8
    assert list(points) == sorted(points)
    assert points[-1] >= (count - 1) / 2
    assert count != 9 or points == (0.5, 2.5, 4.5, 6.5, 8.0), "means of equally many values"


def test_odd_states_draw() -> None:
    """Every state, no behavior and numbers out of bounds are drawn."""
    over = BehaviorState("Over", env_steps_trained=11, max_steps=10, queued_bytes=9, queue_capacity_bytes=4)
    for state in RunState:
        shown = draw(run_view(over, BehaviorState("Empty", steps_per_second=math.nan), state=state))
        assert all(part in shown for part in (state.value, "11 / 10", "225%"))
        assert state.value in draw(run_view(state=state))


def test_failing_actors_and_the_page_stay_in_view() -> None:
    """The panel names the page, and the first failing actors with what they cost; the others are counted."""
    troubles = tuple(TroubleView(f"flaky-{n}", "environment 0 failed:\x1b[2J [bold]no", 18, 3705) for n in range(5))
    view = replace(run_view(behavior()), page="http://127.0.0.1:9464/", troubles=troubles, troubled=40)
    shown = draw(view)
    assert "page        http://127.0.0.1:9464/" in shown
    assert "failing     flaky-0  18 failures  3,705 steps given up  environment 0 failed:\\x1b[2J [bold]no" in shown
    assert ("flaky-2" in shown, "flaky-3" in shown) == (True, False)
    assert "and 37 more actors" in shown
    for width in (20, 60, 80):
        lines = draw(view, width=width).splitlines()
        assert max(map(len, lines)) <= width
        assert any("flaky-0" in line for line in lines) or width == 20
    assert "failing" not in draw(run_view(behavior()))
    one = replace(view, troubles=(TroubleView("a" * 200, "its policy does not load", 0, 0),), troubled=1)
    assert "failure" not in draw(one)
    assert "its policy does not load" in draw(one)


def test_an_unfinished_bar_is_not_red() -> None:
    """Progress has the color of progress: rich's own is that of an error."""
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system="truecolor", no_color=False)
    with console.capture() as capture:
        console.print(PanelPicture().draw(run_view(behavior())))
    bar = re.search(r"\x1b\[([0-9;]*)m━+", capture.get())
    assert bar is not None
    assert bar[1] == "36"
