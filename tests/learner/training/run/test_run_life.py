"""Tests the folder of a real run over a kill and a resume, and without outputs."""

from __future__ import annotations

import csv
import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from learner.shared.exits import ExitCode
from learner.shared.observe.address import read_addresses
from learner.start.list_runs import RunRow, list_runs
from tests.e2e.processes import ROOT, SECONDS, TRACEBACK, Processes, command_environment, processes_in, wait_until
from tests.e2e.runs import small, write_run
from tests.learner.installed import install

pytestmark = pytest.mark.slow

NAME = "CartPole"
MODULE = """
    import json
    from pathlib import Path

    class Notes:
        def on_start(self, event):
            self.path = event.folder / "notes.jsonl"

        def _note(self, event):
            with self.path.open("a") as file:
                file.write(json.dumps([type(event).__name__, getattr(event, "version", None)]) + "\\n")

        on_update = on_episode = on_checkpoint = on_end = _note

    class Asks:
        updates = 0

        def on_start(self, event):
            self.run = event.requests

        def on_update(self, event):
            self.updates += 1
            if self.updates == 1:
                self.run.save_checkpoint()
                self.run.evaluate()

        def on_checkpoint(self, event):
            if event.behavior:
                self.saved = True

        def on_episode(self, event):
            if event.episodes > 300 and self.saved:
                self.run.stop()

    class Raises:
        def on_update(self, event):
            raise ValueError("a fault of the user's")

    class Lines:
        def __init__(self, context):
            self.path = context.run_folder / "lines.txt"

        def write(self, category, summaries, step):
            with self.path.open("a") as file:
                file.write(f"{category} {step}\\n")

        def write_text(self, category, title, text, step):
            raise ValueError("a fault of the user's")

        def restart(self, category, step):
            pass

        def close(self):
            pass
"""


@pytest.fixture
def processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Processes]:
    """Starts processes that end with the test and have a user's package installed."""
    points = {
        "rollcast.callbacks": {name: f"mine_of_a_test:{name.capitalize()}" for name in ("asks", "notes", "raises")},
        "rollcast.stats_writers": {"lines": "mine_of_a_test:Lines"},
    }
    site = install(tmp_path / "site", "mine_of_a_test", MODULE, points)
    monkeypatch.setenv("PYTHONPATH", str(site))
    with processes_in(tmp_path) as started:
        yield started


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Returns the objects of a file with one a line; none if it is not there."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def log_lines(folder: Path) -> list[dict[str, Any]]:
    """Returns the log of a run."""
    return lines_of(folder / "logs" / "learner.jsonl")


def journal_names(folder: Path) -> list[str]:
    """Returns the names of the events of a run."""
    return [event["event"] for event in lines_of(folder / "events.jsonl")]


def steps_of(folder: Path) -> list[tuple[int, str]]:
    """Returns step and key of each row of the statistics."""
    with (folder / NAME / "stats.csv").open(newline="") as file:
        return [(int(row["step"]), row["key"]) for row in csv.DictReader(file)]


def only(results: Path) -> RunRow:
    """Returns the one run there is."""
    (row,) = list_runs(results)
    return row


def test_a_run_folder_tells_the_whole_life(processes: Processes) -> None:
    """After a kill and a resume the curves have each step once, and journal and log have both starts."""
    own = {"callbacks": ["notes", "raises"], "stats_writers": ["csv", "lines"]}
    run_file = write_run(processes.folder, {NAME: small()}, checkpoint_seconds=0.5, **own)
    learner = processes.learner(run_file)
    results = learner.folder.parent
    address = learner.address
    actor = processes.actor(address, "CartPole-v1", "--num-envs", "2")
    learner.wait_for_version(NAME, 20, actor)
    learner.wait_for((learner.folder / "run_state.pt").exists, "a state to go on from", actor)
    learner.wait_for(lambda: only(results).state == "running", "the list says so", actor)
    learner.kill()
    assert only(results).state == "killed"

    learner = processes.learner(run_file, "--resume", port=int(address.rpartition(":")[2]))
    learner.wait_for_version(NAME, 60, actor)
    learner.signal(signal.SIGTERM)
    assert learner.wait() == ExitCode.OK, learner.said()
    folder = learner.folder

    rows = steps_of(folder)
    steps = [step for step, _ in rows]
    assert len(rows) == len(set(rows)), "no row twice"
    assert steps == sorted(steps)
    assert {"Environment/Cumulative Reward", "Losses/Value Loss"} <= {key for _, key in rows}

    names = journal_names(folder)
    assert [name for name in names if name in ("started", "finished")] == ["started", "started", "finished"]
    assert {"actor_joined", "checkpoint"} <= set(names)
    assert lines_of(folder / "events.jsonl")[-1]["reason"] == "signal"

    lines = log_lines(folder)
    starts = [line["event"] for line in lines if line["event"] in ("learner_starts", "learner_started")]
    assert starts == ["learner_starts", "learner_started"] * 2, "a line before the wait for torch"
    assert all("torch" in line["next"] for line in lines if line["event"] == "learner_starts"), "what it waits for"
    assert [line["generation"] for line in lines if line["event"] == "learner_started"] == [1, 2]
    failures = [line for line in lines if line["event"] == "callback_failed"]
    assert 1 <= len(failures) <= 2, "once a start"
    assert "a fault of the user's" in failures[0]["exception"]
    assert sum(line["event"] == "callback_switched_off" for line in lines) == 2

    notes = [json.loads(line) for line in (folder / "notes.jsonl").read_text().splitlines()]
    assert {kind for kind, _ in notes} == {"PolicyUpdated", "EpisodesFinished", "CheckpointSaved", "RunEnded"}
    assert notes[-1][0] == "RunEnded"
    assert f"{NAME} {steps[0]}" in (folder / "lines.txt").read_text().splitlines()
    assert not list(folder.glob("*/events.out.*")), "TensorBoard was not asked for"
    row = only(results)
    assert (row.state, row.reason, row.generation) == ("stopped", "signal", 2)
    assert row.best_return is not None
    assert row.best_return > 0
    assert json.loads((folder / "versions.json").read_text())["generation"] == 2


def test_a_callback_asks_for_a_checkpoint_an_evaluation_and_the_end(processes: Processes) -> None:
    """A callback's requests for checkpoint, evaluation and end are executed between updates."""
    run_file = write_run(processes.folder, {NAME: small()}, callbacks=["asks"], evaluation={"episodes": 2, "actors": 1})
    learner = processes.learner(run_file)
    actor = processes.actor(learner.address, "CartPole-v1", "--num-envs", "4")
    assert learner.wait() == ExitCode.OK, learner.said()
    assert actor.wait() == 0
    events = lines_of(learner.folder / "events.jsonl")
    assert events[-1]["reason"] == "callback"
    assert any(event["event"] == "checkpoint" and event.get("behavior") == NAME for event in events[:-3])
    (evaluation,) = [event for event in events if event["event"] == "evaluation"]
    assert (evaluation["behavior"], evaluation["episodes"]) == (NAME, 2)


def learner(folder: Path, stdout: int, stderr: int, *arguments: str) -> subprocess.Popen[bytes]:
    """Starts a learner for people, with these outputs."""
    run_file = write_run(folder, {"CartPole": small()})
    options = ["--run-id", "run", "--results-dir", str(folder), "--address", "127.0.0.1:0", *arguments]
    return subprocess.Popen(
        [sys.executable, "-m", "learner", "serve", str(run_file), *options],
        cwd=ROOT,
        env={**command_environment(), "TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40"},
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
    )


def summary(folder: Path) -> dict[str, Any]:
    """Returns the run's summary as JSON."""
    content: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    return content


def test_standard_output_that_nobody_reads(tmp_path: Path) -> None:
    """`serve ... | head -0` loses only the table."""
    read, out = os.pipe()
    os.close(read)
    process = learner(tmp_path, out, subprocess.PIPE, "--max-wall-seconds", "1.5")
    os.close(out)
    _, said = process.communicate()
    assert process.returncode == ExitCode.OK, said
    assert TRACEBACK not in said.decode()
    assert b"stopping" in said, "the log goes on"
    assert summary(tmp_path)["stop_reason"] == "max_wall_seconds"


def test_a_terminal_that_goes_away(tmp_path: Path) -> None:
    """A terminal that closes does not end the run."""
    parent, child = pty.openpty()
    process = learner(tmp_path, child, child, "--max-wall-seconds", "900")
    os.close(child)
    shown = b""
    while "╭".encode() not in shown:
        shown += os.read(parent, 65536)
    os.close(parent)
    wait_until(lambda: read_addresses(tmp_path / "run"), "it listens")
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == ExitCode.OK
    assert summary(tmp_path)["stop_reason"] == "signal"
