"""Tests which display is used in a terminal, in a pipe, and for JSON."""

import json
import math
import os
import pty
import select
import signal
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise

import pytest
from structlog.testing import capture_logs

from learner.observe.behavior_state import FIELDS, BehaviorState
from learner.observe.display import PANEL_SECONDS, Display, LineSurface
from learner.observe.jsonfile import as_json
from learner.observe.view import RunState, RunView
from tests.learner.observe.views import behavior, run_view

PROGRAM = """
import sys, time
import structlog
from learner.observe import logs
from learner.observe.display import open_display
from tests.learner.observe.views import behavior, run_view
form = sys.argv[1]
logs.configure(form)
with open_display(form, 0.01) as display:
    display.update(run_view(behavior()), now=True)
    structlog.get_logger().info("between", number=1)
    print("printed", flush=True)
    display.update(run_view(behavior()), now=True)
    exec(sys.argv[2])
"""
HIDE_CURSOR, SHOW_CURSOR = "\\x1b[?25l", "\\x1b[?25h"


def on_terminal(
    log_format: str, ending: str = "", term: str = "xterm-256color", interrupt: bool = False
) -> tuple[str, int]:
    """Runs the program on a pseudo-terminal; returns what the terminal got (escapes spelled out) and the exit code."""
    parent, child = pty.openpty()
    environ = {**os.environ, "TERM": term, "COLUMNS": "120", "LINES": "40", "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, log_format, ending], stdin=child, stdout=child, stderr=child, env=environ
    )
    os.close(child)
    shown = b""
    while True:
        ready, _, _ = select.select([parent], [], [], 60)
        try:
            data = os.read(parent, 65536) if ready else b""
        except OSError:  # the other end is closed
            break
        if not data:
            break
        shown += data
        if interrupt and b"READY" in shown:
            process.send_signal(signal.SIGINT)
            interrupt = False
    os.close(parent)
    return shown.decode().replace("\x1b", "\\x1b"), process.wait(timeout=60)


def test_a_terminal_gets_the_panel_and_its_cursor_back() -> None:
    """The panel is drawn below log lines, and the cursor is restored at the end."""
    shown, code = on_terminal("auto")
    assert code == 0
    assert "98,304" in shown
    assert "between" in shown
    assert "printed" in shown
    assert shown.count("╭") >= 4, "two updates, and again below each of the two lines"
    assert 0 <= shown.rindex(HIDE_CURSOR) < shown.rindex(SHOW_CURSOR)
    assert "\\x1b[?1049h" not in shown, "the other screen is not used: the last panel stays readable"


def test_an_interrupt_leaves_the_terminal_as_it_was() -> None:
    """After Ctrl-C the cursor is restored."""
    # Written past rich: an interrupt amid its printing can be lost in it.
    shown, code = on_terminal("auto", "import os; os.write(1, b'READY'); time.sleep(60)", interrupt=True)
    assert code != 0
    assert shown.rindex(HIDE_CURSOR) < shown.rindex(SHOW_CURSOR)


@pytest.mark.parametrize(("log_format", "term"), [("json", "xterm"), ("console", "xterm"), ("auto", "dumb")])
def test_no_panel_where_lines_are_wanted(log_format: str, term: str) -> None:
    """JSON, console and simple terminals get lines without cursor movements."""
    shown, code = on_terminal(log_format, term=term)
    assert code == 0
    assert "╭" not in shown
    assert HIDE_CURSOR not in shown
    assert shown.count("progress") == 2
    if log_format == "json":
        lines = [line for line in shown.splitlines() if line and line != "printed"]
        assert {json.loads(line)["event"] for line in lines} == {"progress", "between"}


def test_a_pipe_gets_plain_lines() -> None:
    """A pipe gets lines without colors or cursor movements."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "auto", ""],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout) == (0, "printed\n")
    assert "\x1b" not in done.stderr
    assert done.stderr.count("progress") == 2


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
    assert PANEL_SECONDS >= 0.5, "more pictures a second would be felt by the trainer"


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


def test_a_line_for_machines_holds_every_number() -> None:
    """The JSON object has each number under its name."""
    view = run_view(behavior(mean_return=math.nan))
    with capture_logs() as lines:
        LineSurface(for_machines=True).show(view)
    line = json.loads(json.dumps(as_json(lines[0]), allow_nan=False))
    expected = {
        *("run_id", "generation", "state", "actors", "behavior"),
        *(each.log or each.name for each in FIELDS if each.log is not None),
        *("bottleneck", "learner_busy", "actor_busy", "network_share", "ledger"),
    }
    assert expected == line.keys() - {"event", "log_level"}
    assert (line["env_steps_per_second"], line["log_prob_error_max"]) == (4123.4, 2.3e-7)
    assert line["ledger"]["dropped"] == {"stale": 90, "bad_action": 6}
    assert line["mean_return_100"] is None
    assert (line["bottleneck"], line["learner_busy"], line["actor_busy"]) == ("learner", 0.97, 0.12)


def test_without_a_behavior_the_line_says_what_is_awaited() -> None:
    """Before the first actor the line has the address to connect to."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(replace(run_view(state=RunState.WAITING), actors=0))
        LineSurface(for_machines=False).show(run_view(state=RunState.WAITING))
    assert [(line["event"], line["address"], line["actors"]) for line in lines] == [
        ("waiting_for_actors", "127.0.0.1:50051", 0),
        ("waiting_for_declaration", "127.0.0.1:50051", 2),
    ]


def test_an_actor_of_a_learner_with_tls_is_started_with_its_certificates() -> None:
    """The advice names the folder of a join code, as a bare address would be refused."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(replace(run_view(state=RunState.WAITING), actors=0, tls=True))
    assert "rollcast-actor gym --env ID --certs DIR" in lines[0]["start"]
    assert "rollcast-actor join DIR" in lines[0]["start"]
    assert "--learner" not in lines[0]["start"]


def test_actors_of_games_are_named_where_all_behaviors_have_self_play() -> None:
    """The advice has commands whose agents can play one another, and not the one whose agent cannot."""
    with capture_logs() as lines:
        LineSurface(for_machines=False).show(replace(run_view(state=RunState.WAITING), actors=0, games=True))
    start = lines[0]["start"]
    assert start.startswith("rollcast-actor boards --game NAME --learner")
    assert "rollcast-actor pettingzoo" in start
    assert "rollcast-actor unity" in start
    assert "rollcast-actor gym" not in start


def test_the_wait_for_actors_is_told_ever_less_often() -> None:
    """The wait for actors is logged at doubling intervals up to ten minutes, with advice once."""
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
        assert told[:6] == [0.0, 5.0, 15.0, 35.0, 75.0, 155.0]
        assert [later - earlier for earlier, later in pairwise(told)][-3:] == [600.0] * 3
        assert "rollcast-actor gym" in lines[0]["start"]
        assert "127.0.0.1:50051" in lines[0]["start"]
        assert not any("start" in line for line in lines[1:])
        surface.show(run_view(behavior()))
        surface.show(waiting)
    assert "start" in lines[-1], "after actors were here it begins again"
