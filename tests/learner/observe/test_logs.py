"""Tests log lines in a separate process."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from learner.observe.logs import LOG_FILE, MAX_OLD_FILES, LogFile, is_terminal
from tests.learner.observe.disk import no_larger_than

PREAMBLE = """
import logging, sys, warnings
import structlog
from learner.observe import logs
log = structlog.get_logger("made before the set-up")
"""


def run(program: str, *, stderr: int = subprocess.PIPE) -> subprocess.CompletedProcess[str]:
    """Runs a program with the preamble in a process."""
    command = [sys.executable, "-c", PREAMBLE + program]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=60, check=False)


def test_json_is_one_object_a_line() -> None:
    """Events, libraries' records, warnings and tracebacks are JSON objects on standard error."""
    done = run(
        """
logs.configure("json", "debug")
log.info("actor_joined", actor="a\\nb", rate=float("nan"), nested={"x": (1, float("inf"))})
log.debug("detail")
logging.getLogger("grpc").warning("library says %d", 3)
warnings.warn("careful")
try:
    raise ValueError("broken")
except ValueError:
    log.exception("trainer_failed")
"""
    )
    assert (done.returncode, done.stdout) == (0, "")
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stderr.splitlines()]
    assert [line["event"] for line in lines[:3]] == ["actor_joined", "detail", "library says 3"]
    assert (lines[0]["actor"], lines[0]["rate"], lines[0]["nested"]) == ("a\nb", None, {"x": [1, None]})
    assert lines[2]["logger"] == "grpc"
    assert "careful" in lines[3]["event"]
    assert "ValueError: broken" in lines[4]["exception"]
    assert all({"level", "timestamp"} <= set(line) for line in lines)


def test_console_lines_carry_no_foreign_control_characters() -> None:
    """Control characters in names, events and tracebacks are escaped."""
    done = run(
        r"""
logs.configure("console")
evil = "\x1b[2Jx\n08:00:00 [info     ] forged"
log.info("actor_joined", actor=evil)
log.info(evil)
logging.getLogger("grpc").warning(evil)
try:
    raise ValueError(evil)
except ValueError:
    log.exception("trainer_failed")
"""
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert not any(line.startswith("08:00:00") for line in done.stderr.splitlines())
    assert "actor=" in done.stderr
    assert "ValueError" in done.stderr


def test_levels() -> None:
    """Records below the level, and libraries' debug records, are not shown."""
    done = run(
        """
for level in ("debug", "info", "warning", "error"):
    logs.configure("console", level)
    log.debug("a_debug"); log.info("an_info"); log.warning("a_warning"); log.error("an_error")
    logging.getLogger("lib").info("library chatter")
"""
    )
    words = [line.split("]")[1].strip() for line in done.stderr.splitlines()]
    assert words == [
        "a_debug",
        "an_info",
        "a_warning",
        "an_error",
        "an_info",
        "a_warning",
        "an_error",
        "a_warning",
        "an_error",
        "an_error",
    ]


def test_bound_context_is_in_every_line() -> None:
    """Bound context is in every line of its thread or call."""
    done = run(
        """
logs.configure("json")
with structlog.contextvars.bound_contextvars(session="s1"):
    log.info("inside")
log.info("outside")
"""
    )
    assert [json.loads(line).get("session") for line in done.stderr.splitlines()] == ["s1", None]


def test_equal_lines_of_libraries_are_throttled() -> None:
    """A library that repeats a line is shown once per interval, with the number of those left out; others are shown."""
    done = run(
        """
logs.LIBRARY_SECONDS = 0.3
logs.configure("json")
import time
for _ in range(1000):
    logging.getLogger("asyncio").error("cannot accept a connection\\nfd: %s", _)
logging.getLogger("asyncio").error("something else")
time.sleep(0.4)
logging.getLogger("asyncio").error("cannot accept a connection")
"""
    )
    events = [json.loads(line)["event"].splitlines()[0] for line in done.stderr.splitlines()]
    assert events[:2] == ["cannot accept a connection", "something else"]
    assert events[2:] == ["cannot accept a connection (999 more were left out)"]


def test_a_terminal_that_has_gone_away_ends_nothing(tmp_path: Path) -> None:
    """A full or closed standard error does not end the program."""
    program = """
logs.configure("console")
log.info("one"); logging.getLogger("lib").warning("two")
sys.stderr.close()
log.info("three"); logging.getLogger("lib").warning("four")
print("went on")
import os; sys.stdout.flush(); os._exit(0)
"""
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = run(program, stderr=full)
    finally:
        os.close(full)
    assert (done.returncode, done.stdout) == (0, "went on\n")


def test_a_stream_can_be_named() -> None:
    """Lines can go to a stream other than standard error."""
    done = run(
        """
logs.configure("console", stream=sys.stdout)
log.info("here")
"""
    )
    assert "here" in done.stdout
    assert done.stderr == ""


def test_what_is_no_terminal() -> None:
    """A buffer and a closed file are no terminals."""
    assert not is_terminal(io.StringIO())
    closed = io.StringIO()
    closed.close()
    assert not is_terminal(closed)


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


def test_an_error_that_ends_the_start_is_in_it(tmp_path: Path) -> None:
    """An error that ends the start is in the log."""

    def start() -> None:
        with LogFile().opened(tmp_path):
            raise RuntimeError("the port is taken")

    with pytest.raises(RuntimeError):
        start()
    (line,) = (tmp_path / LOG_FILE).read_text().splitlines()
    assert json.loads(line)["error"] == "RuntimeError: the port is taken"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_it_holds_what_the_console_shows(tmp_path: Path, log_format: str) -> None:
    """The log has events, libraries' records and tracebacks as JSON, whatever the console's format."""
    program = f"""
import logging, sys
from pathlib import Path
import structlog
from learner.observe import logs
from learner.observe.logs import LogFile
file = LogFile()
logs.configure({log_format!r}, "info", file=file)
log = structlog.get_logger("x")
log.debug("hidden")
with file.opened(Path({str(tmp_path)!r})):
    log.info("joined", actor="a", rate=0.5)
    logging.getLogger("grpc").warning("library says %d", 3)
    try:
        raise ValueError("broken")
    except ValueError as error:
        log.error("failed", exc_info=error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [(line["level"], line["event"]) for line in lines] == [
        ("info", "joined"),
        ("warning", "library says 3"),
        ("error", "failed"),
    ]
    assert (lines[0]["actor"], lines[0]["rate"], lines[1]["logger"]) == ("a", 0.5, "grpc")
    assert "ValueError: broken" in lines[2]["exception"]
    assert "joined" in done.stderr
    assert "ValueError: broken" in done.stderr


def test_lines_of_another_process_are_written_like_the_own_ones() -> None:
    """Forwarded lines have levels, fields and tracebacks, go nowhere else, and cannot forge a line where they are shown."""
    done = run(
        r"""
told = []
logs.forward(lambda *line: told.append(line))
log.info("trainer_started", behavior="A", rate=float("nan"))
log.debug("detail")
logging.getLogger("grpc").warning("library says %d", 3)
try:
    raise ValueError("x\n08:00:00 [info     ] forged")
except ValueError:
    log.exception("trainer_failed")
logs.configure("console")
for level, event, fields in told:
    log.log(logging.getLevelNamesMapping()[level.upper()], event, **fields)
print([(level, event) for level, event, _ in told])
"""
    )
    assert done.returncode == 0, done.stderr
    expected = [("info", "trainer_started"), ("warning", "library says 3"), ("error", "trainer_failed")]
    assert done.stdout == f"{expected}\n"
    assert "rate=None" in done.stderr
    assert "  ValueError: x" in done.stderr
    assert not [line for line in done.stderr.splitlines() if line.startswith("08:00:00")]
