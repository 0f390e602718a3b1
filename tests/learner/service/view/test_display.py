"""Tests which display is used in a terminal, in a pipe, and for JSON."""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from learner.service.view.display import Display, LineSurface, open_display
from learner.shared.observe.behavior_state import BehaviorState
from learner.shared.observe.logs import LogFormat
from learner.shared.observe.view import RunState, RunView
from tests.learner.shared.observe.views import behavior, run_view

PROGRAM = """
import sys, time
import structlog
from learner.shared.observe import logs
from learner.service.view.display import open_display
from tests.learner.shared.observe.views import behavior, run_view
logs.configure("auto")
with open_display("auto", 0.01) as display:
    display.update(run_view(behavior()), now=True)
    structlog.get_logger().info("between", number=1)
    print("printed", flush=True)
    display.update(run_view(behavior()), now=True)
    exec(sys.argv[1])
"""
HIDE_CURSOR, SHOW_CURSOR = "\\x1b[?25l", "\\x1b[?25h"


def on_terminal(ending: str) -> tuple[str, int]:
    """Runs the program on a pseudo-terminal and interrupts it when it is ready.

    Returns what the terminal got, with escapes spelled out, and the exit code.
    """
    parent, child = pty.openpty()
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, ending], stdin=child, stdout=child, stderr=child, env=environ
    )
    os.close(child)
    shown, is_asked = b"", False
    with suppress(OSError):  # the other end is closed
        while data := os.read(parent, 65536):
            shown += data
            if not is_asked and b"READY" in shown:
                process.send_signal(signal.SIGINT)
                is_asked = True
    os.close(parent)
    return shown.decode().replace("\x1b", "\\x1b"), process.wait(timeout=300)


@pytest.mark.slow
def test_a_terminal_gets_the_panel_and_its_cursor_back() -> None:
    """The panel is drawn below log lines, and after Ctrl-C the cursor is restored and the panel stays readable."""
    # Written past rich: an interrupt amid its printing can be lost in it.
    shown, code = on_terminal("import os; os.write(1, b'READY'); time.sleep(600)")
    assert code != 0
    assert "98,304" in shown
    assert "between" in shown
    assert "printed" in shown
    assert shown.count("╭") >= 4, "two updates, and again below each of the two lines"
    assert 0 <= shown.rindex(HIDE_CURSOR) < shown.rindex(SHOW_CURSOR)
    assert "\\x1b[?1049h" not in shown, "the other screen is not used"


@pytest.mark.parametrize(
    ("log_format", "term", "is_terminal"),
    [
        ("auto", "xterm", False),
        ("auto", "dumb", True),
        ("auto", "", True),
        ("json", "xterm", True),
        ("console", "xterm", True),
    ],
)
def test_no_panel_where_lines_are_wanted(
    monkeypatch: pytest.MonkeyPatch, log_format: LogFormat, term: str, *, is_terminal: bool
) -> None:
    """Pipes, JSON, console and simple terminals get lines."""
    monkeypatch.setenv("TERM", term)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    with open_display(log_format, 0.0) as display, capture_logs() as logs:
        display.update(run_view(behavior()), now=True)
    assert [(line["event"], "mean_return_100" in line) for line in logs] == [("progress", log_format == "json")]


class Screen:
    """A display that records its views and can fail."""

    def __init__(self) -> None:
        self.shown: list[RunView] = []
        self.closed = 0
        self.gone = False

    def show(self, view: RunView) -> None:
        """Records the view unless the terminal is gone."""
        if self.gone:
            raise OSError(5, "Input/output error")
        self.shown.append(view)

    def close(self) -> None:
        """Counts, and fails as a terminal does that is gone."""
        self.closed += 1
        if self.gone:
            raise OSError(5, "Input/output error")


def test_views_are_shown_at_a_steady_pace() -> None:
    """At least the interval passes between two views, unless one is forced."""
    now = [0.0]
    screen = Screen()
    display = Display(screen, 5.0, lambda: now[0])
    for _ in range(100):
        if display.due:
            display.update(run_view())
        now[0] += 0.25
    assert len(screen.shown) == 5
    display.update(run_view())
    assert len(screen.shown) == 6
    display.update(run_view())
    assert len(screen.shown) == 6
    display.update(run_view(), now=True)
    assert len(screen.shown) == 7


def test_a_terminal_that_goes_away_ends_the_display_only() -> None:
    """A failure closes the display, and later updates do nothing."""
    screen = Screen()
    with Display(screen, 0.0, time.monotonic) as display:
        display.update(run_view())
        screen.gone = True
        display.update(run_view(), now=True)
        assert not display.due
        display.update(run_view(), now=True)
    assert (len(screen.shown), screen.closed) == (1, 1)


def test_a_line_for_people_says_what_matters() -> None:
    """The line has steps, pace, return, version, lag, queue and actors, and anomalies if any."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(run_view(behavior(), BehaviorState("New"), state=RunState.PAUSED))
    first, second = lines
    assert first["event"] == "progress"
    assert (first["steps"], first["rate"], first["return"]) == ("98304/200000", "4,123/s", "312.4/475")
    assert (first["queue"], first["version"], first["actors"], first["dropped"]) == ("50%", 24, 2, 96)
    assert first["state"] == "paused"
    assert first["bottleneck"] == "learner"
    assert (second["behavior"], second["return"], second["queue"]) == ("New", "-", "0%")
    assert "dropped" not in second


def test_the_wait_for_actors_is_told_ever_less_often() -> None:
    """The wait for actors is logged at doubling intervals up to ten minutes, with advice once and again after actors."""
    now = [0.0]
    surface = LineSurface(for_machines=False, clock=lambda: now[0])
    waiting = replace(run_view(state=RunState.WAITING), actors=0)
    told: list[float] = []
    with capture_logs() as lines:
        for second in range(0, 7200, 5):
            now[0] = float(second)
            before = len(lines)
            surface.show(waiting)
            told += [now[0]] * (len(lines) - before)
        surface.show(run_view(state=RunState.WAITING))
        surface.show(replace(waiting, tls=True))
        surface.show(run_view(behavior()))
        surface.show(replace(waiting, games=True))
    assert told[:6] == [0.0, 5.0, 15.0, 35.0, 75.0, 155.0]
    assert [later - earlier for earlier, later in pairwise(told)][-3:] == [600.0] * 3
    advice = [line["start"] for line in lines if "start" in line]
    assert [("gym" in each, "--learner 127.0.0.1:50051" in each, "--certs" in each) for each in advice] == [
        (True, True, False),
        (True, False, True),
        (False, True, False),
    ]
    assert [line["event"] for line in lines if line["event"] != "waiting_for_actors"] == [
        "waiting_for_declaration",
        "progress",
    ]
