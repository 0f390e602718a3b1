"""Tests the state of a run as text and JSON, and `status --watch` in a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from learner.cli.cli import main
from learner.cli.status import status_document, watch
from learner.shared.exits import ExitCode
from learner.shared.observe.behavior_state import BehaviorState, Field, LedgerNumbers
from learner.shared.observe.document import status_document as document_of
from learner.shared.observe.document import status_of, to_json
from learner.shared.observe.terminal import render_status
from learner.shared.observe.view import (
    ActorDetails,
    ActorView,
    AwayView,
    Bottleneck,
    EnvironmentView,
    GpuUse,
    LessonView,
    LockstepView,
    PolicyView,
    QuarantineView,
    ReportView,
    RunState,
    RunView,
    StatusView,
)


class Output(io.StringIO):
    """What is written to a pipe, or to a terminal."""

    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        """Returns whether it is a terminal."""
        return self._is_terminal


def watched(*, is_terminal: bool) -> str:
    """Watches two texts, of four lines and of many, until Ctrl-C, and returns the output."""
    rows = iter((2, 60))

    def read() -> str:
        count = next(rows, None)
        if count is None:
            raise KeyboardInterrupt
        return f"look {count} " + "x" * 100 + "\nsecond\n" + "\n".join(f"line {row}" for row in range(count))

    output = Output(is_terminal=is_terminal)
    watch(read, 0.0, output)
    return output.getvalue()


def test_a_pipe_gets_one_block_after_another() -> None:
    """A pipe gets blocks without control characters."""
    text = watched(is_terminal=False)
    assert "\x1b" not in text
    assert text.startswith("look 2 " + "x" * 100 + "\nsecond\nline 0\nline 1\n\nlook 60 ")


def test_a_terminal_is_drawn_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a terminal each update starts at the top, fits the screen and clears old lines."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    text = watched(is_terminal=True)
    first, second = text.split("\x1b[H")[1:]
    assert text.startswith("\x1b[2J\x1b[H")
    assert first.split("\x1b[K\n")[:3] == ["look 2 " + "x" * 73, "x" * 27, "second"]
    assert first.endswith("line 1\x1b[K\n\x1b[J")
    assert second.removesuffix("\n").count("\n") == 23


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_a_time_that_makes_no_sense_is_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Too short and too long intervals are refused."""
    assert main(["status", "--control", "127.0.0.1:1", f"--watch={seconds}"]) == ExitCode.USAGE
    assert f"'{seconds}' is not a number of seconds from 0.1 to 3600" in capsys.readouterr().err


def make_status(**changes: Any) -> StatusView:
    """Returns a status with one behavior, an absent older actor and a healthy one."""
    books = LedgerNumbers(
        received=10, trained=4, dropped={"stale": 3}, queued=1, lost={"restart": 2}, duplicate=0, unknown=1
    )
    numbers = {"mean_lag": 0.4, "log_prob_error_max": 2e-7, "loss": 1.0, "heat": 3.0}
    row = BehaviorState(
        "Walker",
        version=2,
        env_steps_taken=11,
        max_steps=50,
        books=books,
        numbers=numbers,
        own_fields=(Field("heat", "How hot it is.", None, label="warmth"),),
    )
    own = ReportView(0, produced=12, acked=5, unacked=3, open=2, discarded={"reset": 2})
    broken = EnvironmentView(12, "it failed: \x1b[2J", "environment 3 has been in step()", 45.0)
    details = ActorDetails((own,), (PolicyView(0, 4, 2),), broken, 61.0)
    actor = ActorView("rig", 3, connected=False, last_seen_seconds=1.5, details=details)
    other = ActorView(
        "second",
        10,
        connected=True,
        last_seen_seconds=0.0,
        steps_per_second=1234.5,
        lag=0,
        credit_steps=4096,
        wait_share=0.125,
        waits_for="credit",
        round_trip_seconds=0.0031,
    )
    run = RunView("run", RunState.PAUSED, 4, 61.4, "", behaviors=(row,), bottleneck=Bottleneck(text=""))
    return StatusView(replace(run, **changes), (actor, other), "1.2.3")


def test_status_as_text() -> None:
    """The text shows the run, the verdict, the books with every reason, and absent actors."""
    bottleneck = Bottleneck("actors", "actor-bound: so it is", actor_busy=0.2)
    lessons = (LessonView("mass", 1, 3, "mid\x1bdle"), LessonView("wind", 0, 1, "wind"))
    gpu = GpuUse(2**30, 3 * 2**30, 80 * 2**30, 0.37)
    told = make_status(last_error="the disk is \x1b[2J full", bottleneck=bottleneck, lessons=lessons, gpu=gpu)
    (row,) = told.run.behaviors
    best = {"evaluation_return_mean": 3.5, "best_return": 4.5, "best_step": 1000, "best_principals": 1}
    row = replace(row, env_steps_trained=4, numbers={**row.numbers, **best})
    told = replace(told, run=replace(told.run, behaviors=(row,)))
    lines = render_status(told).splitlines()
    assert lines == [
        "run run, generation 4: paused, up 0:01:01, 0 actors",
        "bottleneck  learner 0%   actors 20%   network 0%   actor-bound: so it is",
        "gpu         37% busy   3.0 GiB of 80.0 GiB reserved, 1.0 GiB in tensors",
        "lessons     mass 2/3 mid\\x1bdle",
        "Walker",
        "  steps     4 / 50   0/s   11 taken",
        "  return    -   0 episodes",
        "  measured  evaluation 3.50   best checkpoint 4.50 at step 1,000 (unconfirmed: measured by actors of one principal)",
        "  policy    version 2   lag 0.40   log-prob error 2.0e-07   warmth 3.00",
        "  queue     0% 0 B, 0 steps   dropped 3 (stale 3)   lost 2 (restart 2)",
        "  books     received 10 = trained 4 + dropped 3 + queued 1 + lost 2; duplicate 0; unknown sessions 1",
        "actor  name    link        seen  steps/s  lag  credit  waits       round trip",
        "    3  rig     silent     1.5 s        0    -       0  -                    -",
        "       environment 3 has been in step() for 45 s",
        "       environments failed 12 times, most recently 0:01:01 ago: it failed: \\x1b[2J",
        (
            "       Walker, last report: version 2, produced 12 = acked 5 + unacked 3 + open 2 + spooled 0 + discarded 2 (reset 2) + dropped 0"
        ),
        "   10  second  connected  0.0 s    1,234    0   4,096  12% credit      3.1 ms",
        "last error  the disk is \\x1b[2J full",
    ]


def test_status_as_json() -> None:
    """Scripts find every key, also zeros, and whole numbers as text; what is not known is absent."""
    document = json.loads(status_document(make_status()))
    row, actor = document["behaviors"][0], document["actors"][0]
    assert (document["generation"], document["state"], document["last_error"]) == ("4", "RUN_STATE_PAUSED", "")
    assert (document["actors_away"], document["away"], document["quarantined"]) == ("0", [], [])
    assert document["verdict"]["bottleneck"] == "BOTTLENECK_UNSPECIFIED"
    assert (row["version"], row["env_steps_trained"], row["env_steps_per_second"]) == ("2", "0", 0.0)
    assert row["books"] == {
        "received": "10", "trained": "4", "dropped": [{"reason": "stale", "steps": "3"}], "queued": "1",
        "lost": [{"reason": "restart", "steps": "2"}], "duplicate": "0", "unknown_sessions": "1",
    }  # fmt: skip
    assert (row["numbers"]["heat"], row["labels"]) == (3.0, {"heat": "warmth"})
    assert actor == {
        "actor_name": "rig", "actor_index": 3, "session_id": "", "connected": False, "last_seen_ms": "1500",
        "books": [{
            "behavior_index": 0, "produced_steps": "12", "open_steps": "2", "discarded": [{"reason": "reset", "steps": "2"}],
            "dropped": [], "unacked_steps": "3", "acked_steps": "5", "ghost_steps": "0", "agents": 0, "spooled_steps": "0",
        }],
        "policies": [{"behavior_index": 0, "generation": "4", "version": "2", "error": ""}],
        "env_steps_per_second": 0.0, "credit_steps": "0", "waits_for": "", "environment_failed_seconds": 61.0,
        "environments": {
            "failures": "12", "error": "it failed: \x1b[2J", "hanging": "environment 3 has been in step()",
            "hanging_seconds": 45.0,
        },
    }  # fmt: skip
    assert (document["actors"][1]["lag_versions"], document["actors"][1]["wait_ratio"]) == ("0", 0.125)
    assert "mean_return_100" not in row, "a mean of nothing is not zero"
    lockstep = LockstepView(2, 1, 7, 5, 64, "an actor left")
    shown = json.loads(status_document(make_status(lockstep=lockstep, gpu=GpuUse(1, 2, 3))))
    assert shown["gpu"] == {"allocated_bytes": "1", "reserved_bytes": "2", "total_bytes": "3"}, "busy is not known"
    assert shown["lockstep"] == {
        "actors": 2, "joined": 1, "round": "7", "checkpoint_round": "5", "quota_steps": "64", "reproducible": False,
        "reason": "an actor left",
    }  # fmt: skip


HOSTILE = "\x1b]0;x\x07\nforged"


def _hostile(value: Any) -> Any:
    """Returns a document whose texts and numbers are those that a hostile server would send."""
    if isinstance(value, dict):
        found = {key: _hostile(each) for key, each in value.items()}
        return (
            {**found, "numbers": {**found["numbers"], HOSTILE: math.inf, "best_principals": 1.0}}
            if "numbers" in value
            else found
        )
    if isinstance(value, list):
        return [_hostile(each) for each in value]
    if isinstance(value, str):
        return HOSTILE
    return math.nan if isinstance(value, float) else value


def test_a_terminal_obeys_no_text_of_a_server() -> None:
    """Whatever whoever answers sends is shown, each text within its line."""
    away = tuple(AwayView("far", 7, 9.5) for _ in range(3))
    shut_out = (QuarantineView("lab", "rig", 3.5, 2, "a column"),)
    lessons = (LessonView("mass", 1, 3, "middle"),)
    lockstep = LockstepView(2, 1, 5, 4, 64, "an actor left")
    told = make_status(
        last_error="x", away=away, quarantined=shut_out, lessons=lessons, lockstep=lockstep, gpu=GpuUse(1, 2, 3, 0.5)
    )
    document = _hostile(json.loads(to_json(document_of(told)))) | {"state": "paused"}
    for row in document["behaviors"]:
        row["own_labels"] = {"heat": HOSTILE}
        row["books"]["dropped"] = {HOSTILE: 1}
    for status in (told, status_of(document)):
        said = render_status(status, f"http://{HOSTILE}/")
        assert said.replace("\n", "").isprintable()
        assert not [line for line in said.splitlines() if line.startswith("forged")]
    assert said.count("]0;x") > 10
    json.loads(status_document(status))


def test_as_many_actors_are_named_as_a_learner_names() -> None:
    """A list that another server makes longer is cut, and the others are counted."""
    away = tuple(AwayView("a", 0, 1.0) for _ in range(40_000))
    said = render_status(make_status(away=away))
    assert said.count("away for") == 100
    assert "39900 more away" in said
