"""Tests that the demo starts real processes and leaves none behind."""

import json
import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.processes import DEAD_PROXIES, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MARK = "TEST_MARK_OF_THE_DEMO"
WAIT_SECONDS = 300.0


def with_mark(mark: str) -> set[int]:
    """Returns the processes that were started, directly or not, with this mark in their environment."""
    found = set()
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            try:
                environ = (process / "environ").read_bytes()
                is_alive = (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
            except OSError:  # it ended in the meantime
                continue
            if is_alive and f"{MARK}={mark}".encode() in environ.split(b"\0"):
                found.add(int(process.name))
    return found


class Demo:
    """A running demo and the mark of all its processes."""

    def __init__(self, results: Path, *learner_arguments: str, **environment: str) -> None:
        self.mark = uuid.uuid4().hex
        self.folder = results / "demo-7"
        self.output = results / "output.txt"
        environ = {key: value for key, value in os.environ.items() if not key.startswith("ROLLCAST_")}
        command = [sys.executable, str(ROOT / "deploy" / "demo.py"), "--seed", "7", "--results-dir", str(results)]
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [*command, "--", *learner_arguments],
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=results, env={**environ, **environment, MARK: self.mark},
            )  # fmt: skip

    def said(self) -> str:
        """Returns what the demo, and the learner through it, have printed so far."""
        return self.output.read_text(errors="replace")

    def wait_until_training(self) -> None:
        """Waits until the learner has trained something, with both actors running."""

        def trains() -> bool:
            assert self.process.poll() is None, self.said()
            return bool(re.search(r"\"version\": [1-9]", self.said())) and len(with_mark(self.mark)) >= 4

        wait_until(trains, "both actors and the learner train", seconds=WAIT_SECONDS, said=self.said)


@contextmanager
def demo(results: Path, *learner_arguments: str, **environment: str) -> Iterator[Demo]:
    """Runs the demo, and kills what a failing test would leave."""
    running = Demo(results, *learner_arguments, **environment)
    try:
        yield running
    finally:
        for number in with_mark(running.mark):
            os.kill(number, signal.SIGKILL)
        running.process.wait()


SHORT = ("--set", "behaviors.CartPole.max_steps=6000")
LONG = ("--set", "behaviors.CartPole.max_steps=1e8", "--target-return", "1e9", "--set", "rollcast.drain_seconds=1")
OFTEN = ("--log-format", "json", "--set", "rollcast.summary_seconds=0.2")


def test_a_run_that_finishes(tmp_path: Path) -> None:
    """Learner and actors train to the end, also where a proxy is set, and the demo ends with the learner's exit code."""
    with demo(tmp_path, *SHORT, **DEAD_PROXIES) as run:
        assert run.process.wait(WAIT_SECONDS) == 0, run.said()
        assert with_mark(run.mark) == set()
        summary = json.loads((run.folder / "summary.json").read_text())
        assert summary["env_steps_taken"] >= 6000
        assert f"trained policy: {summary['onnx_path']}" in run.said()
        assert (run.folder / "CartPole.onnx").stat().st_size > 0
        assert all((run.folder / f"actor-{number}.log").exists() for number in range(2))


def test_an_interrupted_run_ends_in_good_order(tmp_path: Path) -> None:
    """Ctrl-C ends the actors, then the learner saves and writes its summary, and no process is left."""
    with demo(tmp_path, *LONG, *OFTEN) as run:
        run.wait_until_training()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(WAIT_SECONDS) == 128 + signal.SIGINT
        assert with_mark(run.mark) == set()
        assert json.loads((run.folder / "summary.json").read_text())["stop_reason"] == "signal"


def test_an_actor_that_fails_ends_the_demo(tmp_path: Path) -> None:
    """If an actor ends early, the demo prints its code and output, and ends the learner."""
    with demo(tmp_path, *LONG, ROLLCAST_ACTOR_NUM_ENV="8") as run:
        assert run.process.wait(WAIT_SECONDS) == 1, run.said()
        assert "an actor ended with code 10" in run.said()
        assert "ROLLCAST_ACTOR_NUM_ENVS" in run.said().rpartition("an actor ended")[2]
        assert with_mark(run.mark) == set()


def test_a_learner_that_cannot_start_ends_the_demo(tmp_path: Path) -> None:
    """A wrong setting ends the demo with the learner's code before any actor starts."""
    with demo(tmp_path, "--set", "rollcast.addres=1") as run:
        assert run.process.wait(WAIT_SECONDS) == 11, run.said()
        assert "rollcast act" not in run.said()
