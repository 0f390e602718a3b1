"""Tests copies of runs, and which runs are removed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from learner.cli.cli import main
from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.lock import LOCK_NAME, FolderLock
from learner.shared.runfolder.runfolder import open_run_folder
from learner.shared.runfolder.store import CheckpointStore
from learner.start import backup
from learner.start.backup import back_up
from tests.learner.shared.runfolder.test_store import run_state
from tests.learner.start.run_folders import progress_of, run_folder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Makes a run that was saved twice."""
    with open_run_folder(tmp_path / "results", "walk") as folder:
        store = CheckpointStore(folder)
        for steps in (1, 2):
            store.save_run_state(run_state(steps))
        (folder.path / "configuration.yaml").write_text("{}")
        (folder.path / "generation").write_text("1\n")
        (folder.path / "Walker").mkdir()
        (folder.path / "Walker" / "stats.csv").write_text("step\n")
        (folder.path / "address.json").write_text("{}")
        (folder.path / "link").symlink_to("/etc/passwd")
        os.mkfifo(folder.path / "pipe")
    return folder.path


def test_a_copy_can_be_resumed(run: Path, tmp_path: Path) -> None:
    """A copy, made while a learner has the folder, is private and lacks what is true of that learner alone."""
    with open_run_folder(run.parent, "walk", resume=True):
        copy = back_up(run, tmp_path / "copies")
    assert copy.stat().st_mode & 0o077 == 0
    left_out = {"address.json", ".lock", "link", "pipe"}
    assert {path.name for path in run.rglob("*")} - {path.name for path in copy.rglob("*")} == left_out
    shutil.rmtree(run)
    shutil.copytree(copy, run)
    with open_run_folder(run.parent, "walk", resume=True) as again:
        found = CheckpointStore(again).load_run_state()
    assert found is not None
    assert found.generation == 2


def test_a_run_that_is_saved_meanwhile_is_copied_again(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy has the files of one run state; one that never stands still is refused, and nothing is left of it."""
    saves = [True, True, False]
    copy_one = backup._copy

    def saving(source: Path, target: Path) -> None:
        copy_one(source, target)
        if source.name == "stats.csv" and saves.pop(0):
            (run / "new").write_bytes(b"state")
            (run / "new").replace(run / "run_state.previous.pt")
            (run / "run_state.pt").touch()
            source.write_text(source.read_text() + "row\n")

    monkeypatch.setattr(backup, "_copy", saving)
    copy = back_up(run, tmp_path / "copies")
    assert (copy / "Walker" / "stats.csv").read_text() == (run / "Walker" / "stats.csv").read_text()
    assert (copy / "run_state.previous.pt").read_bytes() == b"state"
    saves[:] = [True] * 9
    with pytest.raises(UserError, match="was saved 5 times while it was copied"):
        back_up(run, tmp_path / "others")
    assert list((tmp_path / "others").iterdir()) == []


def test_only_the_newest_copies_stay(run: Path, tmp_path: Path) -> None:
    """`--keep` removes older copies of this run and nothing else; what is damaged is not kept as a copy."""
    copies = tmp_path / "copies"
    others = {"walk-20250101T000000Z-mine", "walk2-20250101T000000Z", "walk"}
    for name in (*others, "walk-20250101T000000Z", "walk-20250102T000000Z"):
        (copies / name).mkdir(parents=True)
    command = ["backup", "walk", str(copies), "--results-dir", str(run.parent), "--keep"]
    assert main([*command, "2"]) == ExitCode.OK
    (newest,) = {path.name for path in copies.iterdir()} - others - {"walk-20250102T000000Z"}
    for name in ("run_state.pt", "run_state.previous.pt"):
        (run / name).write_bytes(b"damaged")
    assert main([*command, "1"]) == ExitCode.BAD_CHECKPOINT
    assert (copies / newest).exists()
    assert main([*command, "0"]) == ExitCode.USAGE
    assert main(["backup", "none", str(copies), "--results-dir", str(run.parent)]) == ExitCode.NOTHING_TO_RESUME


def test_runs_of_one_name_in_two_folders_are_distinct(run: Path, tmp_path: Path) -> None:
    """Copies of `a/walk` and `b/walk` are in folders of their own, so that `--keep` of one leaves the other alone."""
    copies = tmp_path / "copies"
    for parent in "ab":
        shutil.copytree(run, run.parent / parent / "walk", ignore=lambda *_: ["pipe", "link"])
        for time in ("20250101T000000Z", "20250102T000000Z"):
            (copies / parent / f"walk-{time}").mkdir(parents=True)
    command = ["--results-dir", str(run.parent), "--keep", "1"]
    assert main(["backup", "a/walk", str(copies), *command]) == ExitCode.OK
    assert main(["backup", str(run), str(copies), *command]) == ExitCode.OK
    (newest,) = (copies / "a").iterdir()
    assert (newest / "run_state.pt").exists()
    assert len(list((copies / "b").iterdir())) == 2
    assert len([path for path in copies.iterdir() if path.name.startswith("walk-")]) == 1


def test_what_a_killed_copy_left_is_removed(run: Path, tmp_path: Path) -> None:
    """Incomplete copies of killed calls are removed, and those that another call makes, or of other runs, are not."""
    copies = tmp_path / "copies"
    killed, made, old, new, other = (
        copies / f".{name}.partial"
        for name in (
            "walk-20250101T000000Z",
            "walk-20250102T000000Z",
            "walk-20250103T000000Z",
            "walk-20250104T000000Z",
            "walk2-20250101T000000Z",
        )
    )
    for folder in (killed, made, old, new, other):
        folder.mkdir(parents=True)
    FolderLock(killed).release()
    FolderLock(other).release()
    lock = FolderLock(made)
    os.utime(old, (1.0, 1.0))
    copy = back_up(run, copies)
    lock.release()
    assert {path.name for path in copies.iterdir()} == {made.name, new.name, other.name, copy.name}
    assert not (copy / LOCK_NAME).exists()


def test_old_runs_are_removed_when_it_is_meant(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs that nobody wrote to for days are named, and removed with `--yes`; running ones and other programs' folders stay."""
    for name in ("old", "held", "new"):
        run_folder(tmp_path, name, progress=progress_of())
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "configuration.yaml").write_text("behaviors: {}")
    for path in tmp_path.rglob("*"):
        if "new" not in path.parts:
            os.utime(path, (0, 0))
    command = ["runs", "--results-dir", str(tmp_path), "--remove-older-than", "30", "--json"]
    lock = FolderLock(tmp_path / "held")
    for words in ([], ["--yes"]):
        assert main([*command, *words]) == ExitCode.OK
        assert [row["run_id"] for row in json.loads(capsys.readouterr().out)] == ["old"]
    lock.release()
    assert {path.name for path in tmp_path.iterdir()} == {"held", "new", "theirs"}
