"""Tests log lines, on standard error and in the run folder."""

import io
import json
import logging
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest
import structlog
from rollcast.throttle import Throttle

from learner.shared.observe import logs
from learner.shared.observe.logs import LOG_FILE, MAX_OLD_FILES, LogFile, LogFormat, folded, is_terminal
from tests.learner.process import process_as_before
from tests.learner.shared.observe.disk import no_larger_than

log = structlog.get_logger("made before the set-up")
EVIL = "\x1b[2Jx\n08:00:00 [info     ] forged"


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """Restores the process-wide settings of logs."""
    with process_as_before():
        yield


def fail(text: str) -> None:
    """Logs an exception with its traceback."""
    try:
        raise ValueError(text)
    except ValueError:
        log.exception("trainer_failed")


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Returns the lines on standard error; nothing is on standard output."""
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Events with their context, libraries' records, warnings and tracebacks are JSON objects on standard error."""
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        logs.configure("json", "debug")
        with structlog.contextvars.bound_contextvars(session="s1"):
            log.info("actor_joined", actor="a\nb", rate=float("nan"), nested={"x": (1, float("inf"))})
        log.debug("detail")
        logging.getLogger("grpc").warning("library says %d", 3)
        warnings.warn("careful", stacklevel=1)
        fail("broken")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in shown(capsys)]
    assert [line["event"] for line in lines[:3]] == ["actor_joined", "detail", "library says 3"]
    assert (lines[0]["actor"], lines[0]["rate"], lines[0]["nested"]) == ("a\nb", None, {"x": [1, None]})
    assert [line.get("session") for line in lines[:2]] == ["s1", None]
    assert lines[2]["logger"] == "grpc"
    assert "careful" in lines[3]["event"]
    assert "ValueError: broken" in lines[4]["exception"]
    assert all({"level", "timestamp"} <= set(line) for line in lines)


def test_console_lines_carry_no_foreign_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters in names, events and tracebacks are escaped."""
    logs.configure("console")
    log.info("actor_joined", actor=EVIL)
    log.info(EVIL)
    logging.getLogger("grpc").warning(EVIL)
    fail(EVIL)
    lines = shown(capsys)
    assert not any("\x1b" in line or line.startswith("08:00:00 [info     ] forged") for line in lines)
    assert "actor=" in lines[0]
    assert any("ValueError" in line for line in lines)


def test_levels(capsys: pytest.CaptureFixture[str]) -> None:
    """Records below the level, and libraries' debug records, are not shown."""
    levels: tuple[logs.LogLevel, ...] = ("debug", "info", "warning", "error")
    for level in levels:
        logs.configure("console", level)
        for method in levels:
            getattr(log, method)(f"event_{method}")
        logging.getLogger("lib").info("library chatter")
    words = [line.split("]")[1].strip() for line in shown(capsys)]
    assert words == [f"event_{method}" for first in range(4) for method in levels[first:]]


def test_equal_lines_of_libraries_are_throttled(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that repeats a line is shown once per interval, with the number of those left out; others are shown."""
    now = [0.0]
    monkeypatch.setattr(logs, "Throttle", lambda seconds: Throttle(seconds, lambda: now[0]))
    logs.configure("json")
    library = logging.getLogger("asyncio")
    for number in range(1000):
        library.error("cannot accept a connection\nfd: %s", number)
    library.error("something else")
    now[0] = logs.LIBRARY_SECONDS
    library.error("cannot accept a connection")
    events = [json.loads(line)["event"].splitlines()[0] for line in shown(capsys)]
    assert events == [
        "cannot accept a connection",
        "something else",
        "cannot accept a connection (999 more were left out)",
    ]


def test_a_terminal_that_has_gone_away_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a full nor a closed standard error is an error of the program; neither is a terminal."""
    logs.configure("console")
    with open("/dev/full", "w", buffering=1) as full:  # noqa: PTH123
        monkeypatch.setattr(sys, "stderr", full)
        log.info("one")
        logging.getLogger("lib").warning("two")
        with suppress(OSError):
            full.close()
        log.info("three")
        logging.getLogger("lib").warning("four")
        assert not is_terminal(full)
    assert not is_terminal(io.StringIO())


def test_what_came_before_the_folder_is_kept(tmp_path: Path) -> None:
    """Events before the run folder is known are first in its log; those after its end are not in it."""
    file = LogFile()
    file.write({"event": "early", "odd": float("inf")})
    with file.opened(tmp_path):
        file.write({"event": "later"})
    file.write({"event": "too late"})
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["early", "later"]
    assert lines[0]["odd"] is None


def test_it_stays_small(tmp_path: Path) -> None:
    """A full log file is rotated, and the oldest is removed."""
    file = LogFile(max_bytes=2000)
    with file.opened(tmp_path):
        for number in range(500):
            file.write({"event": "again", "number": number})
    names = sorted(path.name for path in (tmp_path / "logs").iterdir())
    assert names == [*(f"learner.{number}.jsonl" for number in range(1, MAX_OLD_FILES + 1)), "learner.jsonl"]
    assert all(path.stat().st_size <= 2000 for path in (tmp_path / "logs").iterdir())
    parts = [*(f"learner.{number}.jsonl" for number in range(MAX_OLD_FILES, 0, -1)), "learner.jsonl"]
    lines = [json.loads(line) for part in parts for line in (tmp_path / "logs" / part).read_text().splitlines()]
    assert [line["number"] for line in lines] == list(range(lines[0]["number"], 500))


def test_a_full_disk_costs_lines(tmp_path: Path) -> None:
    """On a full disk lines are lost without an error, and later ones are readable."""
    file = LogFile()
    with file.opened(tmp_path):
        file.write({"event": "first"})
        with no_larger_than((tmp_path / LOG_FILE).stat().st_size + 3):
            file.write({"event": "second"})
        file.write({"event": "third"})
    lines = [json.loads(line)["event"] for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert lines == ["first", "third"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_it_holds_what_the_console_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    """The log has events, libraries' records, tracebacks and what ended the run as JSON, whatever the console's format."""
    file = LogFile()
    logs.configure(log_format, "info", file=file)
    log.debug("hidden")
    with suppress(RuntimeError), file.opened(tmp_path):
        log.info("joined", actor="a", rate=0.5)
        logging.getLogger("grpc").warning("library says %d", 3)
        fail("broken")
        raise RuntimeError("the port is taken")
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "joined"),
        ("warning", "library says 3"),
        ("error", "trainer_failed"),
        ("error", "ended_by_error"),
    ]
    assert (lines[0]["actor"], lines[0]["rate"], lines[1]["logger"]) == ("a", 0.5, "grpc")
    assert "ValueError: broken" in lines[2]["exception"]
    assert lines[3]["error"] == "RuntimeError: the port is taken"
    console = "\n".join(shown(capsys))
    assert "joined" in console
    assert "ValueError: broken" in console


def test_a_level_leaves_lines_out_on_the_console_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a level above info the console has fewer lines, and the log in the run folder those of info as before."""
    file = LogFile()
    logs.configure("json", "error", file=file)
    with file.opened(tmp_path):
        log.info("joined")
        log.warning("slow")
        logging.getLogger("grpc").warning("library warns")
        logging.getLogger("grpc").error("library fails")
        own = logging.getLogger("a library with a level of its own")
        own.setLevel(logging.DEBUG)
        own.debug("library tells all")
        fail("broken")
    kept = [json.loads(line)["event"] for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert kept == ["joined", "slow", "library fails", "trainer_failed"]
    assert [json.loads(line)["event"] for line in shown(capsys)] == ["library fails", "trainer_failed"]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # of libraries' lines, open as long as a process
def test_lines_of_another_process_are_written_like_the_own_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Forwarded lines have levels, fields and tracebacks, go nowhere else, and cannot forge a line where they are shown."""
    told: list[tuple[str, str, Mapping[str, object]]] = []
    logs.forward(lambda *line: told.append(line))
    log.info("trainer_started", behavior="A", rate=float("nan"))
    log.debug("detail")
    logging.getLogger("grpc").warning("library says %d", 3)
    fail("x\n08:00:00 [info     ] forged")
    assert shown(capsys) == []
    logs.configure("console")
    for level, event, fields in told:
        log.log(logging.getLevelNamesMapping()[level.upper()], event, **fields)
    assert [(level, event) for level, event, _ in told] == [
        ("info", "trainer_started"),
        ("warning", "library says 3"),
        ("error", "trainer_failed"),
    ]
    lines = shown(capsys)
    assert "rate=None" in lines[0]
    assert any(line.startswith("  ValueError: x") for line in lines)
    assert not [line for line in lines if line.startswith("08:00:00 [info     ] forged")]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_a_long_line_is_broken_between_words(columns: int) -> None:
    """On a terminal no line is longer than it, later lines are indented, and nothing but spaces is lost."""
    line = "12:00:00 \x1b[32mprogress\x1b[0m           " + " ".join(
        f"\x1b[36mkey{n}\x1b[0m=value{n}" for n in range(30)
    )
    shown = folded(line, columns)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert all(len(part) < columns for part in plain.splitlines())
    assert all(part.startswith("    key") for part in plain.splitlines()[1:])
    assert "".join(shown.split()) == "".join(line.split())


@pytest.mark.parametrize("line", ["short", "", "x" * 500, "short\n  a traceback " + "y" * 500, "é" * 79])
def test_what_cannot_be_broken_stays(line: str) -> None:
    """Short lines, words longer than the terminal and tracebacks are unchanged."""
    assert folded(line, 80) == line
