"""Tests what run folders tell of their runs."""

import json
import os
import random
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from learner.cli.cli import main
from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.address import BoundAddresses, remove_addresses, write_addresses
from learner.shared.runfolder.lock import FolderLock
from learner.start.backup import back_up
from learner.start.list_runs import RunRow, age, list_runs
from tests.learner.start.run_folders import progress_of, run_folder


def only(results: Path) -> RunRow:
    """Returns the one run there is."""
    (row,) = list_runs(results)
    return row


@pytest.mark.parametrize(
    ("event", "reason", "state"),
    [
        ("finished", "target_return", "finished"),
        ("finished", "signal", "stopped"),
        ("finished", "operator", "stopped"),
        ("failed", "error", "failed"),
    ],
)
def test_the_journal_says_how_a_run_ended(tmp_path: Path, event: str, reason: str, state: str) -> None:
    """The last event of the journal is the end of the newest start."""
    end = {"event": event, "reason": reason, "generation": 2}
    run_folder(tmp_path, "run", generation=2, progress=progress_of(), events=[{"event": "resumed"}, end])
    row = only(tmp_path)
    assert (row.state, row.reason, row.generation) == (state, reason, 2)
    assert (row.env_steps_trained, row.max_steps, row.mean_return, row.best_return) == (500, 1000, 3.0, 7.5)


def test_a_run_whose_learner_went_without_a_word_was_killed(tmp_path: Path) -> None:
    """A run without a learner and without an end in its newest start was killed."""
    events = [{"event": "finished", "reason": "signal", "generation": 1}, {"event": "resumed", "generation": 2}]
    summary = {"generation": 1, "stop_reason": "signal"}
    run_folder(tmp_path, "run", generation=2, progress=progress_of(), events=events, summary=summary)
    assert (only(tmp_path).state, only(tmp_path).reason) == ("killed", "")


def test_a_copy_is_no_killed_run(tmp_path: Path) -> None:
    """A copy of a run whose learner runs elsewhere is a copy, not killed, until a learner continues it."""
    event = {"event": "started", "generation": 1}
    run = run_folder(tmp_path, "run", progress=progress_of(), events=[event])
    lock = FolderLock(run)
    copies = tmp_path / "copies"
    shutil.copytree(run, copies / "copied")  # as cp -r, or rsync from another machine
    shutil.copytree(run, copies / "unhidden", ignore=shutil.ignore_patterns(".*"))
    back_up(run, copies)
    assert [row.state for row in list_runs(copies)] == ["copy"] * 3
    lock.release()
    run.rename(tmp_path / "moved")
    states = {row.run_id: row.state for row in list_runs(tmp_path)}
    assert states["moved"] == "killed"
    FolderLock(copies / "copied").release()  # a learner continued it, and was killed
    assert {row.run_id: row.state for row in list_runs(copies)}["copied"] == "killed"


def test_a_run_whose_start_failed_is_unstarted(tmp_path: Path) -> None:
    """A run with only a counted start is unstarted."""
    run_folder(tmp_path, "run")
    assert (only(tmp_path).state, only(tmp_path).generation) == ("unstarted", 1)


@pytest.mark.parametrize(("told", "state"), [("training", "running"), ("paused", "paused"), ("waiting", "waiting")])
def test_a_run_whose_folder_is_locked_runs(tmp_path: Path, told: str, state: str) -> None:
    """A run whose folder is locked is running; listing does not keep the lock."""
    folder = run_folder(tmp_path, "run", progress=progress_of(state=told))
    write_addresses(folder, BoundAddresses("127.0.0.1:1", "127.0.0.1:2"))
    lock = FolderLock(folder)
    assert only(tmp_path).state == state
    assert only(tmp_path).state == state
    lock.release()
    remove_addresses(folder)
    assert only(tmp_path).state == "unknown"
    FolderLock(folder).release()


def test_runs_without_a_journal_are_listed(tmp_path: Path) -> None:
    """An older run without a journal is listed by its summary."""
    summary = {"generation": 1, "stop_reason": "max_steps", "env_steps_trained": 900, "mean_return_100": 4.0}
    run_folder(tmp_path, "run", summary=summary)
    row = only(tmp_path)
    assert (row.state, row.env_steps_trained, row.best_return) == ("finished", 900, 4.0)


def test_behaviors_are_taken_together(tmp_path: Path) -> None:
    """Steps are summed over behaviors; the return is the first one."""
    progress = progress_of(mean=None, best=None)
    progress["behaviors"]["Runner"] = {"env_steps_trained": 250, "mean_return": 9.0, "best_return": 9.5}
    run_folder(tmp_path, "run", progress=progress)
    row = only(tmp_path)
    assert (row.env_steps_trained, row.mean_return, row.best_return) == (750, 9.0, 9.5)


def test_the_newest_comes_first(tmp_path: Path) -> None:
    """The run that was written last is first."""
    for seconds, name in ((500, "old"), (5, "new"), (50, "middle")):
        folder = run_folder(tmp_path, name, progress=progress_of())
        for path in folder.iterdir():
            os.utime(path, (time.time() - seconds, time.time() - seconds))
    rows = list_runs(tmp_path)
    assert [row.run_id for row in rows] == ["new", "middle", "old"]
    assert rows[2].age_seconds is not None
    assert rows[2].age_seconds >= 500


def test_what_is_no_run_is_left_out(tmp_path: Path) -> None:
    """Files and folders that are no runs are left out."""
    (tmp_path / "notes.txt").write_text("x")
    for name in ("empty", ".hidden", "plots"):
        (tmp_path / name).mkdir()
    (tmp_path / ".hidden" / "generation").write_text("1")
    (tmp_path / "plots" / "a.png").write_bytes(b"")
    (tmp_path / "loop").symlink_to("loop")
    assert list_runs(tmp_path) == []


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    """A missing folder is an error that names the folder and the flag."""
    with pytest.raises(UserError, match="--results-dir") as caught:
        list_runs(tmp_path / "nowhere")
    assert caught.value.exit_code is ExitCode.USAGE


HOSTILE: list[bytes] = [
    b"",
    b"{",
    b"null",
    b"[" * 50_000,
    b"\xff\xfe",
    b'{"generation": [1], "state": {}, "behaviors": []}',
    b'{"generation": 1, "state": ["paused"], "behaviors": {"a": {"env_steps_trained": 1e999}}}',
    b'{"generation": 1, "behaviors": {"a": {"env_steps_trained": "7", "best_return": NaN}}, "stop_reason": 3}',
    b'{"event": ["failed"], "reason": {"a": 1}, "generation": 1, "stop_reason": "\\u001b[2J\\ud800"}',
    b'{"env_steps_trained": ' + b"9" * 5000 + b"}",
    b"9" * 5000,
]


@pytest.mark.parametrize("content", HOSTILE)
def test_no_content_of_a_file_is_an_error(tmp_path: Path, content: bytes) -> None:
    """No content of a file makes listing fail."""
    run_folder(tmp_path, "good", progress=progress_of())
    folder = run_folder(tmp_path, "bad")
    for name in ("generation", "summary.json", "progress.json", "events.jsonl", "run_state.pt", ".lock"):
        (folder / name).write_bytes(content)
    assert {row.run_id for row in list_runs(tmp_path)} == {"good", "bad"}


def test_no_kind_of_file_is_an_error(tmp_path: Path) -> None:
    """Pipes, folders and dead links in the place of files are ignored."""
    makers: list[Any] = [os.mkfifo, os.mkdir, lambda path: path.symlink_to("nowhere")]
    for number, make in enumerate(makers):
        folder = tmp_path / f"odd-{number}"
        folder.mkdir()
        (folder / "configuration.yaml").write_text("")
        for name in ("generation", "summary.json", "progress.json", "events.jsonl", "run_state.pt", ".lock"):
            make(folder / name)
    assert {row.state for row in list_runs(tmp_path)} <= {"unknown", "unstarted", "killed", "copy"}
    assert len(list_runs(tmp_path)) == len(makers)


def test_random_damage(tmp_path: Path) -> None:
    """Files with random changes are listed without an error."""
    random_ = random.Random(1)
    for number in range(100):
        folder = run_folder(
            tmp_path, f"run-{number}", progress=progress_of(), events=[{"event": "finished", "reason": "signal"}]
        )
        for path in folder.iterdir():
            content = bytearray(path.read_bytes())
            for _ in range(3):
                content[random_.randrange(len(content))] = random_.randrange(256)
            path.write_bytes(bytes(content))
    assert len(list_runs(tmp_path)) == 100


def test_runs_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each run is one line, without control characters; an empty folder is no error."""
    assert main(["runs", "--results-dir", str(tmp_path)]) == ExitCode.OK
    assert "no runs in" in capsys.readouterr().out
    run_folder(tmp_path, "walker-1", progress=progress_of(steps=123456))
    run_folder(tmp_path, "evil\x1b[2J\n", progress=progress_of(mean=None, best=None))
    assert main(["runs", "--results-dir", str(tmp_path)]) == ExitCode.OK
    text = capsys.readouterr().out
    heading, *lines = text.splitlines()
    assert heading.split() == ["run", "state", "reason", "starts", "steps", "trained", "of", "return", "best", "age"]
    assert len(lines) == 2
    walker = next(line for line in lines if line.startswith("walker-1"))
    assert walker.split()[1:7] == ["unknown", "1", "123,456", "1,000", "3.00", "7.50"]
    assert "\x1b" not in text
    assert main(["runs", "--json", "--results-dir", str(tmp_path)]) == ExitCode.OK
    rows = {row["run_id"]: row for row in json.loads(capsys.readouterr().out)}
    assert (rows["walker-1"]["env_steps_trained"], rows["walker-1"]["best_return"]) == (123456, 7.5)


@pytest.mark.parametrize(
    ("seconds", "text"), [(None, "-"), (0.2, "0 s"), (59, "59 s"), (60, "1 min"), (7200, "2 h"), (200_000, "2 d")]
)
def test_ages(seconds: float | None, text: str) -> None:
    """Ages have one unit."""
    assert age(seconds) == text
