"""Which checkpoint a word means."""

from __future__ import annotations

from pathlib import Path

import pytest

from learner.checkpoints.choice import chosen_path, load_chosen, read_behavior
from learner.checkpoints.documents import BadCheckpoint
from learner.checkpoints.runfolder import open_run_folder
from learner.checkpoints.status import BestEntry, CheckpointEntry, TrainingStatus
from learner.checkpoints.store import CheckpointStore, encode_behavior, read_run_state
from learner.common.exits import ExitCode, UserError

STATE = {"weights": [1.0, 2.0]}


def store(results: Path) -> CheckpointStore:
    """A run with checkpoints of steps 10 and 20, the first of which is the best."""
    with open_run_folder(results, "run") as folder:
        made = CheckpointStore(folder)
        data = encode_behavior("Ball", 10, STATE)
        made.save_best("Ball", data, step=10, reward=3.0, measure="training", revision=0, export=lambda _path: None)
        for step in (10, 20):
            made.save_behavior("Ball", step=step, state=STATE, reward=None, keep_checkpoints=5)
        return made


def test_words_steps_and_paths(tmp_path: Path) -> None:
    """``best``, a step and a file each lead to a checkpoint of that step."""
    run = store(tmp_path)
    folder = run.folder.path
    assert load_chosen(folder, "Ball", "best", run.status).step == 10
    assert load_chosen(folder, "Ball", "20", run.status).step == 20
    assert load_chosen(folder, "Ball", str(folder / "Ball" / "checkpoint.pt"), run.status).step == 20
    assert chosen_path(folder, "Ball", "0020", run.status) == folder / "Ball" / "Ball-20.pt"


@pytest.mark.parametrize("choice", ["30", "nowhere.pt", "worst"])
def test_what_is_not_there_is_told_with_what_is(tmp_path: Path, choice: str) -> None:
    """One line names the steps that are kept."""
    run = store(tmp_path)
    with pytest.raises(UserError, match=r"steps that are kept: 10, 20; besides there are best and last") as caught:
        load_chosen(run.folder.path, "Ball", choice, run.status)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT


def test_a_number_that_no_step_can_be_is_told(tmp_path: Path) -> None:
    """Python itself refuses to read numbers of so many digits."""
    run = store(tmp_path)
    with pytest.raises(
        UserError, match=r"checkpoint 9999999999999999\.\.\. is a number of 5000 digits, and steps"
    ) as caught:
        load_chosen(run.folder.path, "Ball", "9" * 5000, run.status)
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    assert len(caught.value.message) < 250


@pytest.mark.parametrize("step", [-1, 2**70, True])
def test_a_step_that_cannot_be_is_refused(tmp_path: Path, step: int) -> None:
    """Whatever else is in the file."""
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(encode_behavior("Ball", step, STATE))
    with pytest.raises(BadCheckpoint, match=r"is incomplete \(step is .*, and must be a whole number from 0 to"):
        read_behavior(path)


def test_a_best_of_an_older_run_in_the_folder_is_not_taken(tmp_path: Path) -> None:
    """The status decides, not the file: a run that was started anew has none of its own yet."""
    run = store(tmp_path)
    with pytest.raises(UserError, match="no best checkpoint of 'Ball' yet"):
        load_chosen(run.folder.path, "Ball", "best", TrainingStatus())


def test_the_status_tells_the_best_apart(tmp_path: Path) -> None:
    """It stands beside the list with what it was chosen by; damaged entries are none."""
    run = store(tmp_path)
    best = TrainingStatus.load(run.folder.training_status).best("Ball")
    assert best is not None
    assert (best.entry.steps, best.entry.reward, best.measure, best.revision) == (10, 3.0, "training", 0)
    for wrong in (None, {}, {**best.to_json(), "measure": 3}, {**best.to_json(), "steps": "x"}):
        assert BestEntry.from_json(wrong) is None


def test_only_a_better_one_of_the_same_kind_beats_it() -> None:
    """Equal is not better; another measure or lesson is another thing; one without a number is beaten by any."""
    best = BestEntry(CheckpointEntry(1, "f", 5.0, 0.0, ()), "training", 2)
    assert not best.is_beaten_by(5.0, "training", 2)
    assert best.is_beaten_by(5.1, "training", 2)
    assert best.is_beaten_by(0.0, "evaluation", 2)
    assert best.is_beaten_by(0.0, "training", 3)
    assert BestEntry(CheckpointEntry(1, "f", None, 0.0, ()), "training", 2).is_beaten_by(-9.0, "training", 2)


def test_another_learners_run_state_is_read_and_left_alone(tmp_path: Path) -> None:
    """A damaged one stays where it is; where none can be read there is none."""
    run = store(tmp_path)
    run.folder.run_state.write_bytes(b"damaged")
    assert read_run_state(run.folder.path) is None
    assert run.folder.run_state.read_bytes() == b"damaged"
