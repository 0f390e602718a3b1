"""What a run in lock-step leaves on the disk: run states of certain rounds alone, and lessons with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from learner.curriculum.lessons import Lessons
from learner.link.commands import Command
from learner.run.lockstep.barrier import Lockstep
from learner.run.turns import CurriculumController
from learner.settings.service import LockstepSettings
from tests.learner.ingest.parts import NAME
from tests.learner.run.test_turns import run_of
from tests.learner.starts import Start, begun, opened, saved


def in_lockstep(start: Start, round_: int = 0) -> Lockstep:
    """Lets a start without its service be one of a run in lock-step, after some rounds, with a checkpoint at 2."""
    parts, keeper = start.parts, start.keeper
    commands: list[Command] = []
    lockstep = Lockstep(
        LockstepSettings(), parts.behaviors, parts.sessions, parts.ledger, keeper._lessons, send=commands.append
    )
    lockstep.load_state_dict({"round": round_, "checkpoint": min(round_, 2), "reason": ""})
    keeper._lockstep = lockstep
    return lockstep


def test_a_run_state_is_that_of_a_checkpoint(tmp_path: Path) -> None:
    """Neither the clock, nor an operator, nor the end of the run writes one of another round; models are written."""
    with begun(tmp_path) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
        before = folder.run_state.read_bytes()

        in_lockstep(start, 5)
        start.train(trainer, 1)
        start.keeper.save_if_due(trainers)
        assert start.keeper.save_all(trainers) == folder.run_state
        with capture_logs() as logs:
            kept = start.keeper.finish(trainers)
        assert folder.run_state.read_bytes() == before
        assert kept.is_complete
        assert kept.models[NAME] is not None
        (line,) = [line for line in logs if line["event"] == "run_state_stays"]
        assert (line["round"], line["present_round"]) == (2, 5)
    assert saved(tmp_path).extra["lockstep"] == {"round": 2, "checkpoint": 2, "reason": ""}


def test_the_end_at_a_checkpoint_is_saved(tmp_path: Path) -> None:
    """Nothing came after it, so that there is nothing to repeat."""
    with begun(tmp_path) as (_, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        assert start.keeper.finish(trainers).is_complete
    assert saved(tmp_path).extra["lockstep"]["round"] == 2


def test_a_lesson_begins_with_a_round_and_is_saved_with_a_checkpoint(tmp_path: Path) -> None:
    """Actors hear of it with the next round; a restart goes on with the lessons of the run state, whatever came after."""
    options = run_of(behaviors={NAME: {}})
    with opened(tmp_path) as folder:
        lessons = Lessons(options.environment_parameters, seed=0)
        start = Start(folder, 1, lessons=lessons)
        lockstep = in_lockstep(start, 2)
        start.keeper.save_round({})
        told: list[Command] = []  # by the barrier, with its next round
        curriculum = CurriculumController(lessons, start.keeper, told.append, lockstep)
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
        again.keeper.restore(state)
        again.keeper.restore_lessons()
        assert again.keeper._lessons.numbers() == {"mass": 0}


def test_going_on_from_another_checkpoint_spoils_the_run(tmp_path: Path) -> None:
    """An undisturbed run was never there: the mark says from which one it goes on."""
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
        again.keeper.restore(state)
        again.trainer()
        assert not lockstep.view().is_reproducible
        assert path.name in lockstep.view().reason


@pytest.mark.parametrize("updates", [0, 1])
def test_a_resume_that_repeats_nothing_leaves_the_newer_model(tmp_path: Path, updates: int) -> None:
    """The run state is older than the model that the run ended with: only training puts another one in its place."""
    with begun(tmp_path) as (folder, start, trainer):
        trainers = {NAME: trainer}
        in_lockstep(start, 2)
        start.keeper.save_round(trainers)
        start.train(trainers[NAME], 3)
        in_lockstep(start, 5)
        start.keeper.finish(trainers)
        before = folder.newest_checkpoint(NAME).read_bytes(), folder.final_model(NAME).read_bytes()
    with opened(tmp_path, resume=True) as folder:
        again = Start(folder, 2)
        state = again.store.load_run_state()
        assert state is not None
        again.keeper.restore(state)
        in_lockstep(again, 2)
        trainer = again.trainer()
        if updates:
            again.train(trainer, updates)
        kept = again.keeper.finish({NAME: trainer})
        after = folder.newest_checkpoint(NAME).read_bytes(), folder.final_model(NAME).read_bytes()
        assert (before == after) is (updates == 0)
        assert (kept.is_complete, kept.models[NAME]) == (True, folder.final_model(NAME))
