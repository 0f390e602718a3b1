"""Tests the standard streams of commands."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rollcast.streams import ErrorStream


@pytest.mark.slow
def test_output_holds_what_its_encoding_lacks() -> None:
    """Characters that the output's encoding lacks are replaced, and a closed stream is ignored."""
    program = "import sys; from rollcast.streams import prepare_streams; prepare_streams(); print('Läufer 走'); sys.stderr.write('x')"
    shown = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
        capture_output=True,
        check=True,
    )
    assert shown.stdout.rstrip() == rb"L" + "ä".encode("cp1252") + rb"ufer \u8d70"
    closed = subprocess.run(["sh", "-c", '"$0" -c "$1" >&- 2>&-', sys.executable, program], check=False)
    assert closed.returncode == 0


@pytest.mark.slow
def test_a_closed_stream_keeps_its_number() -> None:
    """A file that is opened later does not take the number of a closed stream, and so does not become that of a child."""
    program = "from rollcast.streams import prepare_streams; prepare_streams(); print(open('/dev/null').fileno() > 2)"
    shown = subprocess.run(
        ["sh", "-c", '"$0" -c "$1" <&- 2>&-', sys.executable, program], capture_output=True, check=True, timeout=300
    )
    assert shown.stdout == b"True\n"


def test_log_lines_to_a_closed_terminal_are_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is full or closed ends no command; standard error may be replaced at any time."""
    stream = ErrorStream()
    full = Path("/dev/full").open("w", buffering=1)  # noqa: SIM115 - it cannot be closed without an error
    for _ in ("full", "closed"):
        monkeypatch.setattr(sys, "stderr", full)
        assert stream.write("a line\n") == 0
        stream.flush()
        assert not stream.isatty()
        with suppress(OSError):
            full.close()
    monkeypatch.setattr(sys, "stderr", later := io.StringIO())
    assert stream.write("a line") == 6
    assert later.getvalue() == "a line"
