"""Tests `status --watch` in a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from learner.common.exits import ExitCode

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 30.0
PROGRAM = """
import itertools, sys
from learner.commands.status_text import watch
numbers = itertools.count()
def read():
    number = next(numbers)
    return f"look {number} " + "x" * 100 + "\\nsecond\\n" + "\\n".join(f"line {row}" for row in range(60 if number else 2))
watch(read, 0.1, sys.stdout)
print("after")
"""


@contextmanager
def watching(output: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that prints repeatedly."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        env={**os.environ, "COLUMNS": "80", "LINES": "24"},
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def read_until(descriptor: int, found: bytes, text: bytes = b"") -> bytes:
    """Reads until something was written."""
    deadline = time.monotonic() + SECONDS
    while found not in text:
        assert time.monotonic() < deadline, text
        text += os.read(descriptor, 1 << 16)
    return text


def watched(ours: int, theirs: int) -> bytes:
    """Watches until Ctrl-C and returns the output."""
    with watching(theirs) as process:
        os.close(theirs)
        text = read_until(ours, b"look 2")
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
        text = read_until(ours, b"after", text)
    os.close(ours)
    assert b"Traceback" not in text
    return text


def test_a_pipe_gets_one_block_after_another() -> None:
    """A pipe gets blocks without control characters, and Ctrl-C ends with 0."""
    text = watched(*os.pipe())
    assert b"\x1b" not in text
    assert text.startswith(b"look 0 " + b"x" * 100 + b"\nsecond\nline 0\nline 1\n\nlook 1 ")


def test_a_terminal_is_drawn_over() -> None:
    """In a terminal each update starts at the top, fits the screen and clears old lines."""
    text = watched(*pty.openpty())
    first, second = text.split(b"\x1b[H")[1:3]
    assert text.startswith(b"\x1b[2J\x1b[H")
    assert first.split(b"\x1b[K\r\n")[:3] == [b"look 0 " + b"x" * 73, b"x" * 27, b"second"]
    assert first.endswith(b"line 1\x1b[K\r\n\x1b[J")
    assert second.count(b"\r\n") == 23


def test_a_reader_that_has_gone_is_no_error() -> None:
    """`--watch | head` ends without an error."""
    reading, writing = os.pipe()
    with watching(writing) as process:
        os.close(writing)
        read_until(reading, b"look 0")
        os.close(reading)
        assert process.wait(SECONDS) != 0  # the command turns the broken pipe into success, see test_run_life.py


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "inf", "1e9", "soon"])
def test_a_time_that_makes_no_sense_is_refused(seconds: str) -> None:
    """Too short and too long intervals are refused."""
    command = [sys.executable, "-m", "learner", "status", "--control", "127.0.0.1:1", f"--watch={seconds}"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert ended.returncode == ExitCode.USAGE, ended
    assert f"'{seconds}' is not a number of seconds from 0.1 to 3600" in ended.stderr
