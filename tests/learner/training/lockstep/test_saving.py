"""Tests what a lock-step run saves."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from learner.link.to_front import ToFront
from learner.shared.settings.service import LockstepSettings
from learner.training.curriculum.lessons import Lessons
from learner.training.lockstep.barrier import Lockstep
from learner.training.run.training import CurriculumController
from learner.training.trainers.parts import Ending
from learner.training.trainers.roster import Roster
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, begun, opened, saved
from tests.learner.training.run.test_curriculum import run_of


def in_lockstep(start: Start, round_: int = 0) -> Lockstep:
    """Turns a start without a service into a lock-step run after some rounds, with a checkpoint at 2."""
    keeper = start.keeper
    commands: list[ToFront] = []
    lockstep = Lockstep(LockstepSettings(), Roster(), keeper._lessons, send=commands.append)
    lockstep.load_state_dict({"round": round_, "checkpoint": min(round_, 2), "reason": ""})
    keeper._lockstep = lockstep
    keeper._parts["lockstep"] = lockstep
    return lockstep


def test_a_run_state_is_that_of_a_checkpoint(tmp_path: Path) -> None:
    """Only checkpoint rounds write a run state; models are always written."""
    with begun(tmp_path) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
        before = folder.run_state.read_bytes()

        in_lockstep(start, 5)
        start.train(trainer, 1)
        start.keeper.after_turn(trainers)
        assert start.keeper.save_all(trainers) == folder.run_state
        start.keeper.training_ended(trainers, (NAME,))
        assert folder.final_model(NAME).exists()
        with capture_logs() as logs:
            is_complete = start.keeper.finish(trainers, Ending("signal"))
        assert folder.run_state.read_bytes() == before
        assert is_complete
        assert start.keeper.models[NAME] is not None
        (line,) = [line for line in logs if line["event"] == "run_state_stays"]
        assert (line["round"], line["present_round"]) == (2, 5)
    assert saved(tmp_path).extra["lockstep"] == {"round": 2, "checkpoint": 2, "reason": ""}


def test_the_end_at_a_checkpoint_is_saved(tmp_path: Path) -> None:
    """A run that ends at a checkpoint round saves it."""
    with begun(tmp_path) as (_, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        assert start.keeper.finish(trainers, Ending("signal"))
    assert saved(tmp_path).extra["lockstep"]["round"] == 2


def test_a_lesson_begins_with_a_round_and_is_saved_with_a_checkpoint(tmp_path: Path) -> None:
    """A lesson starts with a round, and a restart continues with the run state's lessons."""
    options = run_of(behaviors={NAME: {}})
    with opened(tmp_path) as folder:
        lessons = Lessons(options.environment_parameters, seed=0)
        start = Start(folder, 1, lessons=lessons)
        lockstep = in_lockstep(start, 2)
        start.keeper.save_round({})
        told: list[ToFront] = []  # by the barrier, with its next round
        curriculum = CurriculumController(
            lessons, start.keeper.save_lessons, told.append, lockstep, on_begun=lambda change: None
        )
        lessons.add_episode(NAME, 9.0, 1)
        lockstep._resets = False
        curriculum.after_turn({})
        assert told == []
        assert lockstep._resets, "this lesson resets environments"
        assert lessons.numbers() == {"mass": 1}
    assert saved(tmp_path).extra["lessons"]["numbers"] == {"mass": 0}
    with opened(tmp_path, resume=True) as folder:
        again = Start(folder, 2, lessons=Lessons(options.environment_parameters, seed=0))
        in_lockstep(again)
        state = again.store.load_run_state()
        assert state is not None
        again.restore(state)
        again.keeper.restore_lessons()
        assert again.keeper._lessons.numbers() == {"mass": 0}


def test_going_on_from_another_checkpoint_spoils_the_run(tmp_path: Path) -> None:
    """Resuming from another checkpoint marks the run with its step."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
        path = start.keeper.save_behavior(trainers[NAME])
    with opened(tmp_path, resume=True) as folder:
        again = Start(folder, 2)
        lockstep = in_lockstep(again)
        again.keeper._resume_checkpoint = str(path)
        state = again.store.load_run_state()
        assert state is not None
        again.restore(state)
        again.trainer()
        assert not lockstep.view().is_reproducible
        assert path.name in lockstep.view().reason


@pytest.mark.parametrize("updates", [0, 1])
def test_a_resume_that_repeats_nothing_leaves_the_newer_model(tmp_path: Path, updates: int) -> None:
    """A resume that trains nothing keeps the newer model."""
    with begun(tmp_path) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
        start.train(trainers[NAME], 3)
        in_lockstep(start, 5)
        start.keeper.finish(trainers, Ending("signal"))
        before = folder.newest_checkpoint(NAME).read_bytes(), folder.final_model(NAME).read_bytes()
    with opened(tmp_path, resume=True) as folder:
        again = Start(folder, 2)
        state = again.store.load_run_state()
        assert state is not None
        again.restore(state)
        in_lockstep(again, 2)
        trainer = again.trainer()
        if updates:
            again.train(trainer, updates)
        is_complete = again.keeper.finish({NAME: trainer}, Ending("signal"))
        after = folder.newest_checkpoint(NAME).read_bytes(), folder.final_model(NAME).read_bytes()
        assert (before == after) is (updates == 0)
        assert (is_complete, again.keeper.models[NAME]) == (True, folder.final_model(NAME))
