"""Tests the bench's command line."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.tools.bench.processes import REPOSITORY
from tests.tools.bench.test_processes import is_alive

pytestmark = pytest.mark.slow

BENCH = [sys.executable, "-m", "tests.tools.bench", "--skip", "sb3", "--skip", "sf"]


def descendants(pid: int) -> list[int]:
    """Returns the ids of all processes below one."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
        except (FileNotFoundError, ProcessLookupError):
            continue
        children.setdefault(parent, []).append(int(folder.name))
    found = list(children.get(pid, []))
    for child in found:
        found += children.get(child, [])
    return found


def is_a_limit(pid: int) -> bool:
    """Returns whether a process is one that the harness measures."""
    try:
        return b"tests.tools.bench.limits" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_one_round_measures_rollcast_and_the_limits(tmp_path: Path) -> None:
    """The table and the JSON file have figures of a real run and of every limit."""
    command = [*BENCH, "--rounds", "1", "--limit-seconds", "0.05", "--out", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    for line in ("Rollcast ", "environments alone", "minibatches of 256, 4 epochs", "Rollcast against"):
        assert line in done.stdout
    document = json.loads((tmp_path / "bench.json").read_text(encoding="utf-8"))
    assert document["contestants"]["rollcast"]["figures"]["steps_per_second"]["median"] > 0
    assert set(document["limits_steps_per_second"]) == {
        "environments_alone",
        "actor_loop",
        "minibatches_256",
        "minibatches_1024",
        "upload",
    }
    assert set(document["rollcast_against"]) == set(document["limits_steps_per_second"])
    assert not (tmp_path / "tmp").exists()


def test_an_interrupted_bench_leaves_no_process(tmp_path: Path) -> None:
    """SIGTERM ends the running processes, and the harness exits with 130."""
    command = [*BENCH, "--skip", "rollcast", "--limit-seconds", "100", "--out", str(tmp_path)]
    harness = subprocess.Popen(command, cwd=REPOSITORY, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while not (children := [pid for pid in descendants(harness.pid) if is_a_limit(pid)]):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        os.kill(harness.pid, signal.SIGTERM)
        assert harness.wait(60) == 130
        assert not any(is_alive(child) for child in children)
    finally:
        harness.kill()
        harness.wait()
