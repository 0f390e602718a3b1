"""The log of a run in its folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from learner.observe.logs import LOG_FILE, MAX_OLD_FILES, LogFile
from tests.learner.observe.disk import no_larger_than


def test_what_came_before_the_folder_is_kept(tmp_path: Path) -> None:
    """Events before the run folder is known stand first; those after its end stand nowhere."""
    file = LogFile()
    file.write({"event": "early", "odd": float("inf")})
    with file.opened(tmp_path):
        file.write({"event": "later"})
    file.write({"event": "too late"})
    lines = [json.loads(line) for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert [line["event"] for line in lines] == ["early", "later"]
    assert lines[0]["odd"] is None


def test_it_stays_small(tmp_path: Path) -> None:
    """A full file gets a number, and the oldest goes: what the log takes of the disk is bounded, however long it runs."""
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
    """Nothing raises, and what fits later is readable."""
    file = LogFile()
    with file.opened(tmp_path):
        file.write({"event": "first"})
        with no_larger_than((tmp_path / LOG_FILE).stat().st_size + 3):
            file.write({"event": "second"})
        file.write({"event": "third"})
    lines = [json.loads(line)["event"] for line in (tmp_path / LOG_FILE).read_text().splitlines()]
    assert lines == ["first", "third"]


def test_an_error_that_ends_the_start_is_in_it(tmp_path: Path) -> None:
    """Whoever reads the log later learns why the learner ended."""

    def start() -> None:
        with LogFile().opened(tmp_path):
            raise RuntimeError("the port is taken")

    with pytest.raises(RuntimeError):
        start()
    (line,) = (tmp_path / LOG_FILE).read_text().splitlines()
    assert json.loads(line)["error"] == "RuntimeError: the port is taken"


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_it_holds_what_the_console_shows(tmp_path: Path, log_format: str) -> None:
    """Own events, those of libraries and tracebacks, as JSON, whatever the console's format."""
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
