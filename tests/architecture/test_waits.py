"""Tests that tests do not depend on the machine's speed or on ports that others may take."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture import waits

TEXT = """
import time
from time import sleep
def free_port(): ...
def wait(seconds: float = 0.5, *, delay_seconds=0.25, rate=0.5): ...
POLL_SECONDS = 0.1
LEASE_SECONDS: float = 2.0
time.sleep(3)
wait(timeout=0.2, gamma=0.9, pause_seconds=0.0)
start(machine.free_port())
"""


def test_no_test_waits_for_the_machine_anew() -> None:
    """No file sleeps, looks for free ports or passes short times more often than waits.txt says, and none less often."""
    found, listed = waits.all_found(), waits.listed()
    none = dict.fromkeys(waits.KINDS, 0)
    more, fewer = [], []
    for name in sorted({*found, *listed}):
        lines = found.get(name, {kind: [] for kind in waits.KINDS})
        for kind, limit in listed.get(name, none).items():
            if len(lines[kind]) > limit:
                more.append(f"{name}: {len(lines[kind])} {kind} in lines {lines[kind]}, not {limit}")
            elif len(lines[kind]) < limit:
                fewer.append(f"{name}: {len(lines[kind])} {kind}, no longer {limit}")
    assert more == [], "wait for an event, bind port 0, or give a fake clock"
    assert fewer == [], "well done; `python -m tests.architecture.waits` writes the lower counts"


def test_what_is_found(tmp_path: Path) -> None:
    """Sleeps, searches of ports, and times between 0 and 1 s count; constants do not where a fake clock is passed."""
    path = tmp_path / "test_it.py"
    path.write_text(TEXT)
    assert waits.found_in(path) == {"sleeps": [3, 8], "ports": [4, 10], "constants": [5, 5, 6, 9]}
    other = tmp_path / "test_that.py"
    other.write_text(TEXT + "made(clock=lambda: 0.0)\n")
    assert waits.found_in(other)["constants"] == []


def test_the_list_only_falls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing the list lowers counts and removes files, but raises and adds none."""
    monkeypatch.setattr(waits, "LIST", tmp_path / "waits.txt")
    two: dict[str, list[int]] = {"sleeps": [1, 2], "ports": [], "constants": []}
    monkeypatch.setattr(waits, "all_found", lambda: {"a.py": two, "b.py": two})
    waits.LIST.write_text("# sleeps first\n3 0 0 a.py\n1 0 0 c.py\n")
    assert waits.main() == 1
    assert waits.listed() == {"a.py": {"sleeps": 2, "ports": 0, "constants": 0}}
