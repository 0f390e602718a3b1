"""Tests saving and finding the checkpoints of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.documents import CheckpointFailed
from learner.shared.runfolder.lock import LOCK_NAME
from learner.shared.runfolder.runfolder import RunFolder, open_run_folder
from learner.shared.runfolder.store import CheckpointStore, RecoverySchedule, SavedRunState


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[RunFolder]:
    """Makes a new run's folder."""
    with open_run_folder(tmp_path, "run") as opened:
        yield opened


def run_state(number: int, floats: int = 10) -> SavedRunState:
    """Makes a state that can be told from others by its number."""
    trainers = {"Walker": {"version": number, "weights": torch.full((floats,), float(number))}}
    return SavedRunState(
        number, {"received": {"Walker": 5}}, {"sessions": []}, {"behaviors": []}, trainers, {"step": 1}
    )


def save(store: CheckpointStore, step: int, *, keep: int = 0, model: bool = True, name: str = "Walker") -> Path:
    """Saves a checkpoint of a behavior, whose model is a few bytes."""
    export = (lambda path: path.write_bytes(b"model %d" % step)) if model else None
    state = {"step": step, "weights": torch.ones(3)}
    return store.save_behavior(name, step=step, state=state, reward=1.0, keep_checkpoints=keep, export=export)


def files_of(*steps: int) -> list[str]:
    """Returns the names of a behavior's checkpoints."""
    return [*(f"Walker-{step}{suffix}" for step in steps for suffix in (".onnx", ".pt")), "checkpoint.pt"]


def names(folder: Path) -> list[str]:
    """Lists a folder."""
    return sorted(entry.name for entry in folder.iterdir())


def test_a_run_state_comes_back(folder: RunFolder) -> None:
    """A saved run state is loaded with its tensors, and the one before it is kept."""
    store = CheckpointStore(folder)
    assert store.load_run_state() is None
    for number in (1, 2):
        assert store.save_run_state(run_state(number)) == folder.path / "run_state.pt"
    loaded = store.load_run_state()
    assert loaded is not None
    assert (loaded.generation, loaded.ledger, loaded.extra) == (2, {"received": {"Walker": 5}}, {"step": 1})
    assert loaded.trainers["Walker"]["weights"].tolist() == [2.0] * 10
    for path in (folder.run_state, folder.previous_run_state):
        assert path.stat().st_mode & 0o777 == 0o600, "it has the ids of sessions"


@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_a_damaged_state_falls_back_to_the_one_before(folder: RunFolder, damage: str) -> None:
    """A damaged state falls back to the previous one, which the next save keeps."""
    store = CheckpointStore(folder)
    for number in (1, 2):
        store.save_run_state(run_state(number))
    if damage == "missing":
        folder.run_state.unlink()
    else:
        folder.run_state.write_bytes(b"" if damage == "empty" else folder.run_state.read_bytes()[:1000])
    with structlog.testing.capture_logs() as logs:
        loaded = store.load_run_state()
    assert loaded is not None
    assert loaded.generation == 1
    assert [entry["log_level"] for entry in logs] == ["warning"]
    assert "run_state.pt" in logs[0]["reason"]
    store.save_run_state(run_state(3))
    folder.run_state.unlink()
    again = store.load_run_state()
    assert again is not None
    assert again.generation == 1


def test_two_damaged_states_end_the_start(folder: RunFolder) -> None:
    """If both states are damaged, the error names the files and the options."""
    folder.run_state.write_bytes(b"x")
    folder.previous_run_state.write_bytes(b"y")
    with pytest.raises(UserError) as caught:
        CheckpointStore(folder).load_run_state()
    assert caught.value.exit_code == ExitCode.BAD_CHECKPOINT
    assert str(folder.run_state) in caught.value.message
    assert "--force" in caught.value.message
    assert len(caught.value.details) == 2
    assert folder.run_state.exists()


def test_a_state_of_another_kind_is_refused(folder: RunFolder) -> None:
    """A behavior's checkpoint in the place of the run state is a bad checkpoint."""
    store = CheckpointStore(folder)
    save(store, 5).replace(folder.run_state)
    with pytest.raises(UserError, match="of kind 'behavior', not 'run_state'"):
        store.load_run_state()


@pytest.mark.parametrize("generation", [-1, 2**64, True, 1.0])
def test_a_generation_that_no_start_had_is_refused(folder: RunFolder, generation: int) -> None:
    """A generation beyond the range of its message is refused."""
    store = CheckpointStore(folder)
    store.save_run_state(replace(run_state(1), generation=generation))
    with pytest.raises(UserError, match=f"generation is {generation}, but must be a whole number from 0 to") as caught:
        store.load_run_state()
    assert caught.value.exit_code == ExitCode.BAD_CHECKPOINT


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sessions": []}, r"is incomplete \(no sessions\)"),
        ({"trainers": {"Walker": None}}, r"is incomplete \(no state of the trainer of 'Walker'\)"),
    ],
)
def test_an_incomplete_state_is_refused(folder: RunFolder, changes: dict[str, Any], said: str) -> None:
    """Each part of a state, and the state of each trainer, must exist and be a map."""
    store = CheckpointStore(folder)
    store.save_run_state(replace(run_state(1), **changes))
    with pytest.raises(UserError, match=said):
        store.load_run_state()


def test_a_full_disk_leaves_the_old_state(small_disk: Path) -> None:
    """A full disk keeps the old state; the error names file and cause, and saving works later."""
    with open_run_folder(small_disk, "run") as folder:
        store = CheckpointStore(folder)
        store.save_run_state(run_state(1))
        before = names(folder.path)
        with pytest.raises(CheckpointFailed, match=r"run_state\.pt: (No space left|File too large)") as caught:
            store.save_run_state(run_state(2, floats=100_000))
        assert "the earlier file is unchanged" in str(caught.value)
        loaded = store.load_run_state()
        assert loaded is not None
        assert loaded.generation == 1
        assert names(folder.path) == before
        store.save_run_state(run_state(3))


def test_a_full_disk_leaves_the_old_checkpoints(small_disk: Path) -> None:
    """A full disk keeps the old checkpoints and the list."""
    with open_run_folder(small_disk, "run") as folder:
        store = CheckpointStore(folder)
        save(store, 5, keep=1)
        before, listed = names(folder.behavior("Walker")), folder.training_status.read_bytes()
        state = {"weights": torch.zeros(100_000)}
        with pytest.raises(CheckpointFailed, match=r"Walker-9\.pt"):
            store.save_behavior("Walker", step=9, state=state, reward=None, keep_checkpoints=1)
        assert names(folder.behavior("Walker")) == before
        assert folder.training_status.read_bytes() == listed


def test_a_list_that_cannot_be_written_names_no_missing_files(folder: RunFolder) -> None:
    """Old checkpoints are deleted only after the list without them is on the disk."""
    store = CheckpointStore(folder)
    save(store, 5, keep=1)
    folder.training_status.unlink()
    (folder.training_status / "in the way").mkdir(parents=True)
    with pytest.raises(CheckpointFailed, match="training_status"):
        save(store, 9, keep=1)
    assert names(folder.path / "Walker") == sorted([*files_of(5), *files_of(9)[:2]])


@pytest.mark.parametrize(("keep", "left"), [(2, [4, 5]), (1, [5]), (5, [1, 2, 3, 4, 5]), (0, [1, 2, 3, 4, 5])])
def test_the_oldest_go_first(folder: RunFolder, keep: int, left: list[int]) -> None:
    """`keep_checkpoints` of them stay, with model and weights; 0 keeps all."""
    store = CheckpointStore(folder)
    for step in range(1, 6):
        save(store, step, keep=keep)
    assert names(folder.path / "Walker") == files_of(*left)
    assert [entry.steps for entry in store.status.checkpoints("Walker")] == left


def test_retention_goes_on_after_a_resume(tmp_path: Path) -> None:
    """Retention counts checkpoints of the earlier process."""
    with open_run_folder(tmp_path, "run") as folder:
        store = CheckpointStore(folder)
        store.save_run_state(run_state(1))
        for step in (1, 2):
            save(store, step, keep=2)
    with open_run_folder(tmp_path, "run", resume=True) as folder:
        save(CheckpointStore(folder), 3, keep=2)
        assert names(folder.path / "Walker") == files_of(2, 3)


def test_a_forced_run_keeps_the_old_ones_out_of_it(tmp_path: Path) -> None:
    """A forced run neither deletes old checkpoints nor loses its own to them."""
    with open_run_folder(tmp_path, "run") as folder:
        store = CheckpointStore(folder)
        store.save_run_state(run_state(1))
        save(store, 900)
    with open_run_folder(tmp_path, "run", force=True) as folder:
        store = CheckpointStore(folder)
        for step in (1, 2):
            save(store, step, keep=1)
        assert names(folder.path / "Walker") == files_of(2, 900)


def test_a_rolled_back_run_ends_with_its_own_model(tmp_path: Path) -> None:
    """After a rollback the final model is the newest in time, not in steps."""
    with open_run_folder(tmp_path, "run") as folder:
        store = CheckpointStore(folder)
        store.save_run_state(run_state(1))
        save(store, 900)
    with open_run_folder(tmp_path, "run", resume=True) as folder:
        store = CheckpointStore(folder)
        save(store, 850, keep=2)
        store.finish_behavior("Walker")
        assert folder.final_model("Walker").read_bytes() == b"model 850"
        save(store, 860, keep=1)
        assert names(folder.path / "Walker") == files_of(860)


def test_the_same_step_is_replaced(folder: RunFolder) -> None:
    """A step that is saved twice is listed once, without its old model."""
    store = CheckpointStore(folder)
    save(store, 5)
    save(store, 5, model=False)
    assert names(folder.path / "Walker") == ["Walker-5.pt", "checkpoint.pt"]
    (entry,) = store.status.checkpoints("Walker")
    assert entry.file_path.endswith("Walker-5.pt")
    assert entry.auxillary_file_paths == ()
    assert store.finish_behavior("Walker") is None


def test_a_failed_export_costs_the_model_only(folder: RunFolder) -> None:
    """A failed export saves the weights and warns about the model."""

    def fail(path: Path) -> None:
        raise ValueError("no such operator")

    store = CheckpointStore(folder)
    with structlog.testing.capture_logs() as logs:
        store.save_behavior("Walker", step=5, state={}, reward=None, keep_checkpoints=0, export=fail)
    assert "no such operator" in logs[0]["reason"]
    assert names(folder.path / "Walker") == ["Walker-5.pt", "checkpoint.pt"]


def test_hostile_behavior_names_stay_in_the_folder(folder: RunFolder, tmp_path: Path) -> None:
    """A behavior name with a path is saved inside the folder."""
    store = CheckpointStore(folder)
    path = save(store, 5, name="../../x", keep=1)
    save(store, 6, name="../../x", keep=1)
    assert folder.path in path.resolve().parents
    assert not path.exists()
    store.finish_behavior("../../x")
    assert names(tmp_path) == ["run"]
    assert [entry.steps for entry in store.status.checkpoints("../../x")] == [6]


def test_paths_in_a_forged_list_are_not_deleted(tmp_path: Path) -> None:
    """Retention derives paths from steps, not from the list."""
    victim = tmp_path / "victim.onnx"
    victim.write_bytes(b"")
    with open_run_folder(tmp_path, "run") as folder:
        CheckpointStore(folder).save_run_state(run_state(1))
        entry: dict[str, Any] = {"steps": 1, "file_path": str(victim), "reward": None, "creation_time": 0}
        document = {"Walker": {"checkpoints": [{**entry, "auxillary_file_paths": [str(victim)]}]}}
        (folder.run_logs / "training_status.json").write_text(json.dumps(document))
    with open_run_folder(tmp_path, "run", resume=True) as folder:
        save(CheckpointStore(folder), 2, keep=1)
    assert victim.exists()


def test_another_run_is_where_to_start_from(tmp_path: Path) -> None:
    """The behavior's newest checkpoint of the other run is loaded, except in a resumed run."""
    with open_run_folder(tmp_path, "teacher") as folder:
        for step in (5, 6):
            save(CheckpointStore(folder), step)
    with open_run_folder(tmp_path, "run", resume="auto", initialize_from="teacher") as folder:
        store = CheckpointStore(folder)
        newest, named = store.load_initial("Walker"), store.load_initial("Walker", "Walker-5.pt")
        assert newest is not None
        assert named is not None
        assert (newest.behavior, newest.step, named.step) == ("Walker", 6, 5)
        assert newest.state["weights"].tolist() == [1.0] * 3
        store.save_run_state(run_state(1))
    with open_run_folder(tmp_path, "run", resume="auto", initialize_from="teacher") as folder:
        assert CheckpointStore(folder).load_initial("Walker") is None


def test_a_file_is_where_to_start_from(tmp_path: Path) -> None:
    """`init_path` names any file, with or without another run."""
    with open_run_folder(tmp_path, "teacher") as folder:
        path = save(CheckpointStore(folder), 5)
    with open_run_folder(tmp_path, "run") as folder:
        loaded = CheckpointStore(folder).load_initial("Runner", str(path))
        assert loaded is not None
        assert (loaded.behavior, loaded.step) == ("Walker", 5)
        assert CheckpointStore(folder).load_initial("Runner") is None


def test_nothing_to_start_from_is_an_error(tmp_path: Path) -> None:
    """A run without the behavior, and an invalid file, are named."""
    (tmp_path / "teacher").mkdir()
    (tmp_path / "x.pt").write_bytes(b"x")
    with open_run_folder(tmp_path, "run", initialize_from="teacher") as folder:
        store = CheckpointStore(folder)
        for init_path, named in (
            (None, "teacher/Walker/checkpoint.pt does not exist"),
            (str(tmp_path / "x.pt"), "x.pt"),
        ):
            with pytest.raises(UserError, match=named) as caught:
                store.load_initial("Walker", init_path)
            assert caught.value.exit_code == ExitCode.BAD_CHECKPOINT


def test_intervals_double_up_to_the_setting() -> None:
    """With an update each 0.25 s, saves follow the first update after 1, 2, 4 ... seconds, up to `checkpoint_seconds`."""
    now, times = 1000.0, []
    schedule = RecoverySchedule(10.0, clock=lambda: now)
    for updates in range(1, 201):
        if schedule.is_due(updates=updates):
            times.append(now - 1000.0)
            schedule.saved(updates=updates)
        now += 0.25
    assert times == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0, 35.0, 45.0]


def test_a_failed_save_is_tried_again_and_not_at_once() -> None:
    """A failed save is retried after the current interval."""
    now = 1000.0
    schedule = RecoverySchedule(60.0, clock=lambda: now)
    assert schedule.is_due(updates=1)
    schedule.failed()
    assert not schedule.is_due(updates=2)
    now += 1.0
    assert schedule.is_due(updates=2)


@pytest.mark.parametrize("seconds", [0.1, 1.0])
def test_short_settings_are_kept_to(seconds: float) -> None:
    """A setting below one second is used from the start."""
    now = 1000.0
    schedule = RecoverySchedule(seconds, clock=lambda: now)
    schedule.saved(updates=1)
    now += seconds + 0.01
    assert schedule.is_due(updates=2)


def test_an_older_learner_writes_nothing_more(tmp_path: Path) -> None:
    """Without the lock, as on NFS, a later start is noticed before each write, and the folder stays as it is."""
    with open_run_folder(tmp_path, "run") as mine:
        older = CheckpointStore(mine)
        assert mine.next_generation() == 1
        older.save_run_state(run_state(1))
        save(older, 5)
        (mine.path / LOCK_NAME).unlink()
        with open_run_folder(tmp_path, "run", resume=True) as folder:
            newer = CheckpointStore(folder)
            assert folder.next_generation() == 2
            newer.save_run_state(run_state(2))
            before = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
            writes: tuple[Callable[[], object], ...] = (
                lambda: older.save_run_state(run_state(1)),
                lambda: save(older, 6),
                lambda: older.save_best(
                    "Walker", b"x", step=6, reward=1.0, measure="mean_return", revision=1, export=lambda path: None
                ),
                lambda: older.finish_behavior("Walker"),
                older.save_status,
            )
            for write in writes:
                with pytest.raises(UserError, match="another learner") as caught:
                    write()
                assert caught.value.exit_code == ExitCode.SUPERSEDED
            (folder.path / "generation").unlink()
            with pytest.raises(UserError, match="another learner"):
                older.save_status()  # what was found once stays so
            assert mine.is_superseded
            after = {path: path.read_bytes() for path in folder.path.rglob("*") if path.is_file()}
            assert after == {path: data for path, data in before.items() if path.name != "generation"}
            newer.save_status()


@pytest.mark.parametrize("content", [None, b"", b"x", b"1\n"])
def test_an_unreadable_number_of_starts_does_not_end_a_run(tmp_path: Path, content: bytes | None) -> None:
    """Only a later start ends a run, and no file that is missing or damaged."""
    with open_run_folder(tmp_path, "run") as folder:
        folder.next_generation()
        path = folder.path / "generation"
        path.unlink() if content is None else path.write_bytes(content)
        CheckpointStore(folder).save_run_state(run_state(1))
