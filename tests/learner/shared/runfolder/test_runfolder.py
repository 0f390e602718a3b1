"""Tests who may use a run folder, and when."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, regular_descriptor
from learner.shared.runfolder import lock, runfolder
from learner.shared.runfolder.lock import FolderLock
from learner.shared.runfolder.runfolder import RunFolder, check_run_folder, open_run_folder
from learner.start.list_runs import list_runs

HOLDER = """
import signal, sys
from learner.shared.runfolder.runfolder import open_run_folder
folder = open_run_folder(sys.argv[1], "run", resume="auto")
print(folder.next_generation(), flush=True)
signal.pause()
"""


def run(results: Path, *files: str) -> Path:
    """Makes a run folder with files in it, as an ended learner leaves it."""
    with open_run_folder(results, "run", resume="auto") as folder:
        folder.next_generation()
        for name in files:
            (folder.path / name).parent.mkdir(exist_ok=True)
            (folder.path / name).write_bytes(b"x")
    return folder.path


def refused(results: Path, **flags: object) -> UserError:
    """Opens the run folder, which must fail, and returns the error."""
    with pytest.raises(UserError) as caught:
        open_run_folder(results, "run", **flags)  # type: ignore[arg-type]
    return caught.value


def test_a_new_run_is_made(tmp_path: Path) -> None:
    """The folder is made with its parents, and there is nothing to resume."""
    with open_run_folder(tmp_path / "a" / "b", "run") as folder:
        assert folder.path == tmp_path / "a" / "b" / "run"
        assert folder.path.is_dir()
        assert folder.run_id == "run"
        assert not folder.resuming
        assert folder.next_generation() == 1


def test_a_start_in_the_same_folder_continues_what_was_saved(tmp_path: Path) -> None:
    """The next start resumes the run once there is a state, and no longer begins with another run's networks."""
    run(tmp_path, "run_state.pt")
    with open_run_folder(tmp_path, "new", initialize_from="run") as folder:
        source = folder.initialize_from
        assert source is not None
        folder.resume()
        assert (folder.resuming, folder.initialize_from) == (False, source)
        folder.run_state.write_bytes(b"x")
        folder.resume()
        assert (folder.resuming, folder.initialize_from) == (True, None)


def test_an_old_run_is_not_written_over(tmp_path: Path) -> None:
    """A folder with a run needs a flag, and the message names the flags."""
    run(tmp_path, "run_state.pt")
    error = refused(tmp_path)
    assert error.exit_code == ExitCode.RUN_FOLDER_EXISTS
    assert all(flag in error.message for flag in ("--resume", "--force", "--run-id"))
    assert "\n" not in error.message


def test_a_failed_start_is_no_run(tmp_path: Path) -> None:
    """A start that failed early can be repeated without flags."""
    with open_run_folder(tmp_path, "run") as folder:
        folder.next_generation()
        folder.write_configuration({"behaviors": {}}, {})
    with open_run_folder(tmp_path, "run") as folder:
        assert folder.next_generation() == 2


def ended(trained: object, **more: object) -> bytes:
    """Returns a summary of a run with one behavior."""
    return json.dumps({"run_id": "run", "generation": 1, "env_steps_trained": trained, **more}).encode()


def test_a_run_that_trained_nothing_is_no_run(tmp_path: Path) -> None:
    """A run that trained nothing can be started again; its generation continues."""
    written = "versions.json", "address.json", "operator_token", "events.jsonl", "logs/learner.jsonl"
    path = run(tmp_path, *written, "run_logs/Player-0.log")
    (path / "Walker").mkdir()
    (path / "summary.json").write_bytes(ended(0, behavior="Walker"))
    (path / "progress.json").write_text('{"generation": 1, "behaviors": {"Walker": {"env_steps_trained": 0}}}')
    with open_run_folder(tmp_path, "run") as folder:
        assert not folder.resuming
        assert folder.next_generation() == 2


def test_a_state_in_which_nothing_was_trained_is_no_run(tmp_path: Path) -> None:
    """A state without training can be started again without flags, or resumed."""
    path = run(tmp_path, "run_state.pt")
    (path / "summary.json").write_bytes(ended(0))
    with open_run_folder(tmp_path, "run", resume=True) as folder:
        assert folder.resuming
        assert folder.run_state.exists()
    with open_run_folder(tmp_path, "run") as folder:
        assert not folder.resuming
        assert not folder.run_state.exists()


def test_a_state_of_another_start_than_the_summary_is_a_run(tmp_path: Path) -> None:
    """A state of a killed start is kept, even if the earlier start trained nothing."""
    path = run(tmp_path)
    (path / "summary.json").write_bytes(ended(0))
    run(tmp_path, "run_state.pt")
    assert (path / "generation").read_text() == "2\n"
    assert refused(tmp_path).exit_code == ExitCode.RUN_FOLDER_EXISTS
    assert (path / "run_state.pt").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("Walker/Walker-5.pt", b"x"),
        ("Walker/stats.csv", b"x"),
        ("Walker/events.out.tfevents.1", b"x"),
        ("Walker.onnx", b"x"),
        ("notes.txt", b"x"),
        ("summary.json", b"x"),
        ("summary.json", b"{}"),
        ("summary.json", ended(7)),
        ("summary.json", ended(0, behaviors={"A": {"env_steps_trained": 0}, "B": {"env_steps_trained": 7}})),
        ("summary.json", ended(0, behaviors=[])),
        ("progress.json", ended(0, behaviors={"A": 3})),
    ],
)
def test_whatever_may_be_worth_something_is_a_run(tmp_path: Path, name: str, content: bytes) -> None:
    """Trained runs, unreadable files and foreign files are not overwritten."""
    path = run(tmp_path, "versions.json")
    (path / name).parent.mkdir(exist_ok=True)
    (path / name).write_bytes(content)
    assert refused(tmp_path).exit_code == ExitCode.RUN_FOLDER_EXISTS


@pytest.mark.parametrize("resume", [True, "auto"])
@pytest.mark.parametrize("state", ["run_state.pt", "run_state.previous.pt"])
def test_a_run_is_resumed(tmp_path: Path, resume: bool, state: str) -> None:
    """Both forms of the flag resume from the newest state or the one before it."""
    run(tmp_path, state)
    with open_run_folder(tmp_path, "run", resume=resume) as folder:
        assert folder.resuming
        assert folder.next_generation() == 2


def test_a_missing_run_is_not_resumed(tmp_path: Path) -> None:
    """The error lists existing runs, and nothing is created."""
    (tmp_path / "other").mkdir()
    error = refused(tmp_path, resume=True)
    assert error.exit_code == ExitCode.NOTHING_TO_RESUME
    assert "'run'" in error.message
    assert "other" in error.message
    assert not (tmp_path / "run").exists()
    assert refused(tmp_path / "nowhere", resume=True).exit_code == ExitCode.NOTHING_TO_RESUME


def test_a_run_without_a_state_is_not_resumed(tmp_path: Path) -> None:
    """A run without a state is an error for --resume, but not for --resume=auto."""
    run(tmp_path, "Walker/events.out.tfevents.1")
    error = refused(tmp_path, resume=True)
    assert error.exit_code == ExitCode.NOTHING_TO_RESUME
    assert "--resume=auto" in error.message
    with open_run_folder(tmp_path, "run", resume="auto") as folder:
        assert not folder.resuming
    with open_run_folder(tmp_path, "new", resume="auto") as folder:
        assert not folder.resuming


def test_force_starts_anew_and_keeps_files(tmp_path: Path) -> None:
    """--force keeps checkpoints, removes statistics, sets the state aside, and increments the generation."""
    statistics = ("W/events.out.tfevents.1", "W/stats.csv")
    path = run(tmp_path, "run_state.pt", "run_state.previous.pt", "W/W-5.pt", "W/x.csv", *statistics)
    with open_run_folder(tmp_path, "run", force=True) as folder:
        assert not folder.resuming
        assert folder.next_generation() == 2
    assert (path / "W" / "W-5.pt").exists()
    assert (path / "W" / "x.csv").exists()
    assert not any((path / name).exists() for name in statistics)
    assert (path / "run_state.replaced.pt").exists()
    assert refused(tmp_path, resume=True).exit_code == ExitCode.NOTHING_TO_RESUME


@pytest.mark.parametrize("resume", [True, "auto"])
def test_force_and_resume_contradict(tmp_path: Path, resume: bool) -> None:
    """--force and --resume together are a usage error."""
    assert refused(tmp_path, resume=resume, force=True).exit_code == ExitCode.USAGE


@pytest.mark.parametrize("name", ["../x", "", ".", "..", "a/../../b", "/x", "a\0b", "a//b"])
def test_names_stay_in_the_results_folder(tmp_path: Path, name: str) -> None:
    """A run id is the name of a folder, not a path; the same for --initialize-from."""
    for run_id, initialize_from in ((name, None), ("run", name)):
        with pytest.raises(UserError) as caught:
            open_run_folder(tmp_path / "results", run_id, initialize_from=initialize_from)
        assert caught.value.exit_code == ExitCode.RUN_FILE
    assert not (tmp_path / "results").exists()


def test_another_run_to_start_from(tmp_path: Path) -> None:
    """--initialize-from needs an existing run and does not apply to a resumed run."""
    error = refused(tmp_path, initialize_from="teacher")
    assert "'teacher'" in error.message
    (tmp_path / "teacher").mkdir()
    with open_run_folder(tmp_path, "run", resume="auto", initialize_from="teacher") as folder:
        assert folder.initialize_from == tmp_path / "teacher"
        folder.run_state.write_bytes(b"")
    with open_run_folder(tmp_path, "run", resume="auto", initialize_from="teacher") as folder:
        assert folder.resuming
        assert folder.initialize_from is None


@pytest.mark.slow
def test_one_learner_a_folder(tmp_path: Path) -> None:
    """A second learner in a folder is refused; after a kill the next one can start."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "1\n"
        error = refused(tmp_path, resume="auto")
        assert error.exit_code == ExitCode.RUN_FOLDER_EXISTS
        assert f"process {holder.pid}" in error.message
        with open_run_folder(tmp_path, "other"):
            pass
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.communicate()
    with open_run_folder(tmp_path, "run", resume="auto") as folder:
        assert folder.next_generation() == 2


def test_a_look_at_the_lock_refuses_no_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start waits while a command that lists runs holds the lock briefly."""
    path = run(tmp_path, "run_state.pt")
    assert not FolderLock.is_held(path)
    with (path / ".lock").open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        looked = SimpleNamespace(sleep=lambda _: fcntl.flock(file, fcntl.LOCK_UN))
        monkeypatch.setattr(lock, "time", looked)  # it is released while the start waits
        with open_run_folder(tmp_path, "run", resume=True):
            assert FolderLock.is_held(path)
    assert not FolderLock.is_held(path)
    assert not FolderLock.is_held(tmp_path / "nowhere")


def test_a_read_only_file_system_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that cannot be written says why: rights, or a file system that nobody can write to."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_RDONLY))
    with pytest.raises(UserError, match="Read-only file system"):
        check_run_folder(tmp_path, "run")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=0))
    with pytest.raises(UserError, match="Permission denied"):
        check_run_folder(tmp_path, "run")
    monkeypatch.undo()
    (tmp_path / "file").touch()
    for results, words in ((tmp_path / ("x" * 300), "File name too long"), (tmp_path / "file", "Not a directory")):
        with pytest.raises(UserError, match=words):
            check_run_folder(results, "run")


@pytest.mark.parametrize(("code", "advised"), [(errno.ENOSPC, True), (errno.EDQUOT, True), (errno.EROFS, False)])
def test_only_a_full_disk_needs_room(tmp_path: Path, code: int, advised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The advice of a failed write fits its cause."""

    def fails(path: Path, _: bytes) -> None:
        raise WriteFailed(path, OSError(code, os.strerror(code)))

    with open_run_folder(tmp_path, "run") as folder:
        monkeypatch.setattr(runfolder, "write_file", fails)
        with pytest.raises(UserError, match=os.strerror(code)) as caught:
            folder.next_generation()
    assert ("make room" in caught.value.message) is advised


def test_a_run_on_a_read_only_file_system_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a lock cannot be opened for writing, as in a read-only mount of a container, it still tells who has the folder."""

    def opened(path: Path, flags: int, *, follow_links: bool) -> tuple[int, str]:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return regular_descriptor(path, flags, follow_links=follow_links)

    with open_run_folder(tmp_path, "run") as folder:
        monkeypatch.setattr(lock, "regular_descriptor", opened)
        assert FolderLock.is_held(folder.path)


@pytest.mark.parametrize("content", [b"", b"1\n", b"\n1\n2\n", bytes(30), b"\n" + b"9" * 20], ids=len)
def test_a_lock_of_an_ended_learner_is_taken(tmp_path: Path, content: bytes) -> None:
    """One of an earlier release is taken too, and one whose content a power failure has lost."""
    path = run(tmp_path, "run_state.pt") / ".lock"
    path.write_bytes(content)
    open_run_folder(tmp_path, "run", resume=True).close()
    assert not FolderLock.is_of_another_folder(path.parent)


@pytest.mark.parametrize("kind", ["link", "dangling", "pipe", "folder", "hard link", "text"])
def test_only_a_lock_is_taken_as_one(tmp_path: Path, kind: str) -> None:
    """A start follows no link, waits for no pipe and truncates no file but a lock of its folder."""
    path = run(tmp_path, "run_state.pt") / ".lock"
    path.unlink()
    precious = tmp_path / "precious"
    if kind != "dangling":
        precious.write_text("1\n2\n3\n" if kind == "hard link" else "not to be lost")
    make: dict[str, Callable[[Path], object]] = {
        **dict.fromkeys(("link", "dangling"), lambda path: path.symlink_to(precious)),
        "pipe": os.mkfifo,
        "folder": Path.mkdir,
        "hard link": lambda path: path.hardlink_to(precious),
        "text": lambda path: path.write_text("not to be lost"),
    }
    make[kind](path)
    error = refused(tmp_path, resume=True)
    assert error.exit_code is ExitCode.RUN_FILE
    assert f"{path} cannot be the lock of a learner" in error.message
    assert precious.exists() is (kind != "dangling")
    if kind in {"link", "text"}:
        assert path.read_text() == "not to be lost"
    assert not FolderLock.is_held(path.parent)


def test_who_may_not_write_to_the_lock_cannot_take_it(tmp_path: Path) -> None:
    """Who can open a file can lock it, so that another user's reader could keep the learner out."""
    path = run(tmp_path, "run_state.pt") / ".lock"
    for before, after in ((0o644, 0o600), (0o664, 0o660), (0o666, 0o666)):
        path.chmod(before)
        open_run_folder(tmp_path, "run", resume=True).close()
        assert path.stat().st_mode & 0o777 == after


def test_a_copy_by_hard_links_has_no_learner(tmp_path: Path) -> None:
    """Its lock is the same file, and still that of the original's folder alone."""
    with open_run_folder(tmp_path, "run") as folder:
        (tmp_path / "copy").mkdir()
        (tmp_path / "copy" / ".lock").hardlink_to(folder.path / ".lock")
        assert (FolderLock.is_held(folder.path), FolderLock.is_held(tmp_path / "copy")) == (True, False)
        assert FolderLock.is_of_another_folder(tmp_path / "copy")
        with pytest.raises(UserError, match="not a lock of this folder; remove it"):
            FolderLock(tmp_path / "copy")
    open_run_folder(tmp_path, "run", resume="auto").close()


def test_a_refused_start_does_not_keep_the_lock(tmp_path: Path) -> None:
    """After an error the same process can open the folder with the right flags."""
    run(tmp_path, "run_state.pt")
    refused(tmp_path)
    open_run_folder(tmp_path, "run", resume=True).close()


def test_the_generation_never_falls_below_the_state(tmp_path: Path) -> None:
    """If the generation file is lost, the generation continues from the loaded state."""
    with open_run_folder(tmp_path, "run") as folder:
        assert folder.next_generation(at_least=41) == 42
        assert folder.next_generation() == 43


@pytest.mark.parametrize("content", [None, b"", b"seven", b"-1", b"\xff", b"9" * 30])
def test_a_damaged_generation_is_not_guessed(tmp_path: Path, content: bytes | None) -> None:
    """A damaged generation file, and a pipe in its place, is an error."""
    with open_run_folder(tmp_path, "run") as folder:
        path = folder.path / "generation"
        os.mkfifo(path) if content is None else path.write_bytes(content)
        with pytest.raises(UserError, match="larger than any generation in the log") as caught:
            folder.next_generation()
    assert caught.value.exit_code == ExitCode.BAD_CHECKPOINT


def test_a_full_disk_at_the_start_is_said_in_one_line(small_disk: Path) -> None:
    """A full disk at the start is an error of one line."""
    with open_run_folder(small_disk, "run") as folder:
        with pytest.raises(UserError, match="make room") as caught:
            folder.write_configuration({"x": "y" * 600_000}, {})
        assert caught.value.exit_code == ExitCode.NOT_SAVED
        assert not (folder.path / "configuration.yaml").exists()


def test_the_configuration_is_written(tmp_path: Path) -> None:
    """The YAML keeps the order of its keys, and the sources are in a second file."""
    with open_run_folder(tmp_path, "run") as folder:
        folder.write_configuration({"b": 1, "a": {"ä": None}}, {"b": "yaml"})
        text = (folder.path / "configuration.yaml").read_text("utf-8")
        assert list(yaml.safe_load(text)) == ["b", "a"]
        assert json.loads((folder.path / "configuration_sources.json").read_text()) == {"b": "yaml"}


def test_leftovers_of_a_killed_learner_are_removed(tmp_path: Path) -> None:
    """Unfinished files are removed when the folder is opened."""
    path = run(tmp_path, "run_state.pt", "W/.tmp-0123", ".tmp-4567")
    open_run_folder(tmp_path, "run", resume=True).close()
    assert not list(path.glob("**/.tmp-*"))


def test_closing_twice_is_harmless(tmp_path: Path) -> None:
    """The lock is given back once."""
    folder: RunFolder = open_run_folder(tmp_path, "run")
    folder.close()
    descriptor = os.open(tmp_path, os.O_RDONLY)  # takes the number the lock had
    folder.close()
    os.close(descriptor)


def test_the_name_of_a_new_run_folder_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every folder in which a new one was made is flushed; a folder that exists already is not."""
    flushed: list[Path] = []
    monkeypatch.setattr(runfolder, "sync_folder", flushed.append)
    results = tmp_path / "deep" / "results"
    with open_run_folder(results, "run") as folder:
        assert folder.path.is_dir()
    assert set(flushed) == {results, tmp_path / "deep", tmp_path}
    flushed.clear()
    with open_run_folder(results, "run", resume="auto"):
        assert not flushed


@pytest.mark.parametrize("resume", [False, True, "auto"])
@pytest.mark.parametrize(
    ("files", "named"),
    [
        (["Ball/checkpoint.pt", "Ball/Ball-500.onnx", "configuration.yaml"], "ML-Agents (Ball/checkpoint.pt)"),
        (["run_logs/training_status.json", "Ball.onnx"], "ML-Agents 1.1.0 (run_logs/training_status.json)"),
        (["Ball/frozen_graph_def.pb", "Ball/checkpoint"], "ML-Agents (Ball/frozen_graph_def.pb)"),
        (["checkpoint_000010/policies/default/policy_state.pkl", "checkpoint_000010/algorithm_state.pkl"], "RLlib"),
        (["logs/best_model.zip", "monitor.csv"], "Stable-Baselines3 (logs/best_model.zip)"),
        (["checkpoint_p0/checkpoint_000000001_4096.pth", "cfg.json"], "Sample Factory"),
        (["7/_METADATA", "notes.md"], "another program (7/_METADATA)"),
        (["weights.safetensors"], "another program (weights.safetensors)"),
        (["ckpt"], "another program (ckpt)"),
    ],
)
def test_the_run_of_another_program_is_named_and_not_touched(
    tmp_path: Path, files: list[str], named: str, resume: bool | str
) -> None:
    """Nothing is written there, the lock included, and no advice would destroy it; --force does as it says."""
    path = tmp_path / "run"
    for name in files:
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text('{"metadata": {"mlagents_version": "1.1.0"}}')
    error = refused(tmp_path, resume=resume)
    assert named in error.message
    assert "start over" not in error.message
    assert "resume" not in error.message
    assert error.exit_code == (ExitCode.NOTHING_TO_RESUME if resume is True else ExitCode.RUN_FOLDER_EXISTS)
    with pytest.raises(UserError):
        check_run_folder(tmp_path, "run", resume=resume)  # type: ignore[arg-type]
    assert sorted(str(each.relative_to(path)) for each in path.rglob("*") if each.is_file()) == sorted(files)
    with open_run_folder(tmp_path, "run", force=True) as folder:
        assert folder.next_generation() == 1
    with open_run_folder(tmp_path, "run", resume="auto"):
        assert all((path / name).exists() for name in files)


@pytest.mark.parametrize("name", ["notes.txt", "run.yaml", ".gitkeep", "Ball/setup.json"])
def test_documents_are_no_run(tmp_path: Path, name: str) -> None:
    """A service may begin in a folder that holds its own notes."""
    (tmp_path / "run" / name).parent.mkdir(parents=True)
    (tmp_path / "run" / name).write_text("x")
    with open_run_folder(tmp_path, "run", resume="auto") as folder:
        assert not folder.resuming


def test_a_run_may_be_in_a_folder_of_runs(tmp_path: Path) -> None:
    """As in ML-Agents, --run-id soccer/first is a folder in a folder; it is found there."""
    with open_run_folder(tmp_path, "soccer/first") as folder:
        assert folder.run_id == "soccer/first"
        assert folder.path == tmp_path / "soccer" / "first"
        folder.next_generation()
    with open_run_folder(tmp_path, "other", initialize_from="soccer/first"):
        pass
    assert [row.run_id for row in list_runs(tmp_path)] == ["soccer/first"]
    with pytest.raises(UserError):
        open_run_folder(tmp_path, "soccer/../../out")
