"""Tests which checkpoint a name selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.shared.exits import ExitCode, UserError
from learner.shared.runfolder.choice import chosen_path, load_chosen, read_behavior
from learner.shared.runfolder.documents import BadCheckpoint
from learner.shared.runfolder.runfolder import open_run_folder
from learner.shared.runfolder.status import BestEntry, CheckpointEntry, TrainingStatus
from learner.shared.runfolder.store import CheckpointStore, encode_behavior, read_run_state

STATE = {"weights": [1.0, 2.0]}


def store(results: Path) -> CheckpointStore:
    """Makes a run with checkpoints at steps 10 and 20, of which the first is the best."""
    with open_run_folder(results, "run") as folder:
        made = CheckpointStore(folder)
        data = encode_behavior("Ball", 10, STATE)
        made.save_best("Ball", data, step=10, reward=3.0, measure="training", revision=0, export=lambda _path: None)
        for step in (10, 20):
            made.save_behavior("Ball", step=step, state=STATE, reward=None, keep_checkpoints=5)
        return made


def test_words_steps_and_paths(tmp_path: Path) -> None:
    """``best``, a step and a file each select a checkpoint."""
    run = store(tmp_path)
    folder = run.folder.path
    assert load_chosen(folder, "Ball", "best", run.status).step == 10
    assert load_chosen(folder, "Ball", "20", run.status).step == 20
    assert load_chosen(folder, "Ball", str(folder / "Ball" / "checkpoint.pt"), run.status).step == 20
    assert chosen_path(folder, "Ball", "0020", run.status) == folder / "Ball" / "Ball-20.pt"


@pytest.mark.parametrize("choice", ["30", "nowhere.pt", "worst"])
def test_what_is_not_there_is_told_with_what_is(tmp_path: Path, choice: str) -> None:
    """An unknown name is refused with the steps that are kept."""
    run = store(tmp_path)
    with pytest.raises(UserError, match=r"name best, last or a kept step \(kept: 10, 20\)") as caught:
        load_chosen(run.folder.path, "Ball", choice, run.status)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


def test_a_number_that_no_step_can_be_is_told(tmp_path: Path) -> None:
    """A number with too many digits is refused."""
    run = store(tmp_path)
    with pytest.raises(
        UserError, match=r"checkpoint 9999999999999999\.\.\. has 5000 digits, but the largest step"
    ) as caught:
        load_chosen(run.folder.path, "Ball", "9" * 5000, run.status)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("step", [-1, 2**70, True])
def test_a_step_that_cannot_be_is_refused(tmp_path: Path, step: int) -> None:
    """A file with an invalid step is refused."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(encode_behavior("Ball", step, STATE))
    with pytest.raises(BadCheckpoint, match=r"is incomplete \(step is .*, but must be a whole number from 0 to"):
        read_behavior(path)


def test_a_best_of_an_older_run_in_the_folder_is_not_taken(tmp_path: Path) -> None:
    """The best checkpoint of an older run in the folder is not selected."""
    run = store(tmp_path)
    with pytest.raises(UserError, match="no best checkpoint of 'Ball' yet"):
        load_chosen(run.folder.path, "Ball", "best", TrainingStatus())


def test_the_status_tells_the_best_apart(tmp_path: Path) -> None:
    """The status file has the best checkpoint with its measure; damaged entries are ignored."""
    run = store(tmp_path)
    best = TrainingStatus.load(run.folder.training_status).best("Ball")
    assert best is not None
    assert (best.entry.steps, best.entry.reward, best.measure, best.revision) == (10, 3.0, "training", 0)
    for wrong in (None, {}, {**best.to_json(), "measure": 3}, {**best.to_json(), "steps": "x"}):
        assert BestEntry.from_json(wrong) is None


def test_only_a_better_one_of_the_same_kind_beats_it() -> None:
    """Only a strictly better result of the same measure and lesson replaces the best one."""
    best = BestEntry(CheckpointEntry(1, "f", 5.0, 0.0, ()), "training", 2)
    assert not best.is_beaten_by(5.0, "training", 2)
    assert best.is_beaten_by(5.1, "training", 2)
    assert best.is_beaten_by(0.0, "evaluation", 2)
    assert best.is_beaten_by(0.0, "training", 3)
    assert BestEntry(CheckpointEntry(1, "f", None, 0.0, ()), "training", 2).is_beaten_by(-9.0, "training", 2)


def test_another_learners_run_state_is_read_and_left_alone(tmp_path: Path) -> None:
    """Reading another learner's damaged run state leaves it in place."""
    run = store(tmp_path)
    run.folder.run_state.write_bytes(b"damaged")
    assert read_run_state(run.folder.path) is None
    assert run.folder.run_state.read_bytes() == b"damaged"
