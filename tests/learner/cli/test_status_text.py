"""Tests the state of a run as text and JSON, and `status --watch` in a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from rollcast.v1 import control_pb2, session_pb2

from learner.cli.cli import main
from learner.cli.status_text import render_status, status_document, watch
from learner.shared.exits import ExitCode
from learner.shared.observe.behavior_state import FIELDS


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


def make_status(**changes: Any) -> control_pb2.StatusResponse:
    """Returns a status with one behavior, an absent older actor and a healthy one."""
    count = session_pb2.ReasonCount
    books = control_pb2.LearnerBooks(
        received=10,
        trained=4,
        dropped=[count(reason="stale", steps=3)],
        queued=1,
        lost=[count(reason="restart", steps=2)],
        unknown_sessions=1,
    )
    row = control_pb2.BehaviorStatus(behavior="Walker", version=2, env_steps_taken=11, max_steps=50, books=books)
    row.numbers.update({"mean_lag": 0.4, "log_prob_error_max": 2e-7, "loss": 1.0, "heat": 3.0})
    row.labels["heat"] = "warmth"
    own = session_pb2.ActorBooks(
        produced_steps=12, acked_steps=5, unacked_steps=3, open_steps=2, discarded=[count(reason="reset", steps=2)]
    )
    acts = session_pb2.PolicyReport(generation=4, version=2)
    broken = session_pb2.EnvironmentReport(
        failures=12, error="it failed: \x1b[2J", hanging="environment 3 has been in step()", hanging_seconds=45
    )
    actor = control_pb2.ActorStatus(
        actor_name="rig", actor_index=3, last_seen_ms=1500, books=[own], policies=[acts],
        environments=broken, environment_failed_seconds=61.0,
    )  # fmt: skip
    other = control_pb2.ActorStatus(
        actor_name="second",
        actor_index=10,
        connected=True,
        env_steps_per_second=1234.5,
        credit_steps=4096,
        wait_ratio=0.125,
        waits_for="credit",
        round_trip_seconds=0.0031,
        lag_versions=0,
    )
    state = {"run_id": "run", "generation": 4, "state": control_pb2.RUN_STATE_PAUSED, "uptime_seconds": 61.4}
    return control_pb2.StatusResponse(behaviors=[row], **{"actors": [actor, other], **state, **changes})


def test_status_as_text() -> None:
    """The text shows the run, the verdict, the books with every reason, and absent actors."""
    verdict = control_pb2.Verdict(bottleneck=control_pb2.BOTTLENECK_ACTORS, text="actor-bound: so it is")
    lessons = [
        control_pb2.LessonStatus(parameter="mass", number=1, lessons=3, name="mid\x1bdle"),
        control_pb2.LessonStatus(parameter="wind", lessons=1, name="wind"),
    ]
    told = make_status(last_error="the disk is \x1b[2J full", verdict=verdict, lessons=lessons)
    lines = render_status(told).splitlines()
    assert lines == [
        "run run, generation 4: paused, up 61 s",
        "bottleneck: actor-bound: so it is",
        "Walker: version 2, 11 steps taken of 50, 0 per second",
        "  no episode has ended yet",
        "  lag 0.40, log-prob error 2.0e-07, warmth 3.00",
        "  received 10 = trained 4 + dropped (stale 3) + queued 1 + lost (restart 2); duplicate 0; unknown sessions 1",
        "mass: lesson 2 of 3, mid\\x1bdle",
        "actor  name    link        seen  steps/s  lag  credit  waits       round trip",
        "    3  rig     silent     1.5 s        0    -       0  -                    -",
        "       environment 3 has been in step() for 45 s",
        "       environments failed 12 times, most recently 0:01:01 ago: it failed: \\x1b[2J",
        (
            "       Walker, last report: version 2, produced 12 = acked 5 + unacked 3 + open 2 + spooled 0 + discarded (reset 2) + dropped (none)"
        ),
        "   10  second  connected  0.0 s    1,234    0   4,096  12% credit      3.1 ms",
        "last error: the disk is \\x1b[2J full",
    ]


def test_status_as_json() -> None:
    """JSON has every key of the protocol, also zeros."""
    document = json.loads(status_document(make_status()))
    assert document["state"] == "RUN_STATE_PAUSED"
    assert document["last_error"] == ""
    (row,) = document["behaviors"]
    assert row["env_steps_trained"] == "0"
    assert "mean_return_100" not in row, "a mean of nothing is not zero"
    assert row["books"]["lost"] == [{"reason": "restart", "steps": "2"}]


HOSTILE = "\x1b]0;x\x07\nforged"


def _fill(message: Any) -> None:
    """Gives each field of a message a value that a hostile server would."""
    for field in message.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            held = getattr(message, field.name)
            value = field.message_type.fields_by_name["value"]
            names = ["best_principals", *(each.name for each in FIELDS)]
            held.update(dict.fromkeys([*names, HOSTILE], HOSTILE if value.type == value.TYPE_STRING else math.inf))
        elif field.message_type is not None:
            held = getattr(message, field.name)
            _fill(held.add() if field.is_repeated else held)
        else:
            is_text, is_float = field.type == field.TYPE_STRING, field.type in {field.TYPE_DOUBLE, field.TYPE_FLOAT}
            value = HOSTILE if is_text else math.nan if is_float else field.type != field.TYPE_BYTES and 2**31 - 1
            value = value or b"\x1b"
            value = True if field.type == field.TYPE_BOOL else value
            if field.is_repeated:
                getattr(message, field.name).append(value)
            else:
                setattr(message, field.name, value)


def test_a_terminal_obeys_no_text_of_a_server() -> None:
    """Whatever whoever answers sends is shown, each text within its line."""
    status = control_pb2.StatusResponse(server_version=HOSTILE)
    _fill(status)
    status.state = 4242  # type: ignore[assignment]
    said = render_status(status, f"http://{HOSTILE}/")
    assert said.replace("\n", "").isprintable()
    assert not [line for line in said.splitlines() if line.startswith("forged")]
    assert "unknown state 4242" in said
    assert said.count("]0;x") > 10


def test_as_many_actors_are_named_as_a_learner_names() -> None:
    """A list that another server makes longer is cut, and the others are counted."""
    away = [control_pb2.AwayActor(actor_name="a")] * 40_000
    said = render_status(control_pb2.StatusResponse(away=away, actors_away=40_000))
    assert said.count("away for") == 100
    assert "39900 more away" in said
