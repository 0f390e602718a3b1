"""Tests what is saved of a run, when, and how it is restored."""

from __future__ import annotations

import copy
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import structlog
import torch

from learner.shared.exits import ExitCode, UserError
from learner.shared.observe.view import RunState as ViewState
from learner.shared.runfolder.documents import CheckpointFailed
from learner.shared.runfolder.runfolder import open_run_folder
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import SavedRunState
from learner.training.buffers.replay_file import FILE_NAME
from learner.training.curriculum.lessons import Lessons
from learner.training.trainers.parts import Ending
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, begun, opened, saved, saved_after_one_update
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.trainers.sac.started import feed, make
from tests.learner.training.trainers.synthetic import SyntheticActor


def test_a_restart_goes_on(tmp_path: Path) -> None:
    """A restart restores weights, counters, books and sessions; queued steps count as lost."""
    with begun(tmp_path, 2) as (folder, first, trainer):
        first.parts.ledger.enqueue(NAME, 7)
        first.run_status.history.add(NAME, 3.0, {"mean_return": 20.0})
        first.keeper.save_run_state({NAME: trainer})
        before = first.parts.ledger.books(NAME)
    state = saved(tmp_path)
    assert (state.generation, state.extra["seed"]) == (1, {"run": 5})

    with opened(tmp_path, resume=True) as folder:
        second = Start(folder, 2)
        second.restore(state)
        view = second.run_status.behavior_state(second.parts.behaviors.all()[0])
        assert (view.version, view.env_steps_trained) == (2, trainer.steps_trained)
        assert second.run_status.history.view(NAME) == first.run_status.history.view(NAME)
        again = second.trainer()
        assert (again.version, again.steps_trained, again.episodes) == (2, trainer.steps_trained, trainer.episodes)
        assert again.mean_return() == trainer.mean_return()
        ours, theirs = trainer.network.state_dict(), again.network.state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in ours.items())
        books = second.parts.ledger.books(NAME)
        assert books.balanced
        assert (books.trained, books.lost) == (before.trained, {"restart": before.queued})
        assert books.unknown_sessions == 1
        second.train(again, 1)
        assert again.version == 3


def test_a_behavior_whose_actors_stay_away_is_not_forgotten(tmp_path: Path) -> None:
    """A restored behavior without actors is saved again."""
    state = saved_after_one_update(tmp_path)
    with opened(tmp_path, resume=True) as folder:
        second = Start(folder, 2)
        second.restore(state)
        second.keeper.save_run_state({})
    assert saved(tmp_path).trainers[NAME]["version"] == 1
    assert saved(tmp_path).generation == 2


def test_it_is_saved_when_due(tmp_path: Path) -> None:
    """A checkpoint is saved after an update and an interval, and only once."""
    with begun(tmp_path) as (folder, start, trainer):
        start.keeper.after_turn({NAME: trainer})
        assert not folder.run_state.exists()
        start.train(trainer, 1)
        start.keeper.after_turn({NAME: trainer})
        first = folder.run_state.stat().st_mtime_ns
        start.keeper.after_turn({NAME: trainer})
        assert folder.run_state.stat().st_mtime_ns == first
        start.train(trainer, 1)
        start.keeper.after_turn({NAME: trainer})
        assert folder.run_state.stat().st_mtime_ns > first


def test_what_is_saved_when_training_ends_is_not_written_again(tmp_path: Path) -> None:
    """After the end of training only the run state is written again."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        trainers = {NAME: trainer}
        files = folder.final_model(NAME), folder.newest_checkpoint(NAME), folder.run_state

        def written() -> list[int]:
            return [file.stat().st_mtime_ns for file in files]

        start.keeper.training_ended(trainers, (NAME,))
        first = written()
        start.keeper.training_ended(trainers, (NAME,))
        assert written() == first
        assert start.keeper.finish(trainers, Ending("max_steps"))
        assert written()[:2] == first[:2]
        assert written()[2] > first[2]
        assert start.keeper.models == {NAME: folder.final_model(NAME)}
        start.train(trainer, 1)
        assert start.keeper.finish(trainers, Ending("signal"))
        assert all(now > before for now, before in zip(written(), first, strict=True))


def test_a_folder_that_cannot_be_written_costs_the_checkpoint(tmp_path: Path) -> None:
    """A failed checkpoint shows the reason and the run continues; an operator's save gets the error."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        aside = folder.path.rename(tmp_path / "aside")
        folder.path.write_text("a file where the folder was")
        for attempt in (
            lambda: start.keeper.after_turn({NAME: trainer}),
            lambda: start.keeper.save(trainer),
            lambda: start.keeper.finish({NAME: trainer}, Ending("signal")),
        ):
            start.reporting.last_error = ""
            attempt()
            assert str(folder.path) in start.reporting.last_error
        with pytest.raises(CheckpointFailed):
            start.keeper.save_all({NAME: trainer})
        folder.path.unlink()
        aside.rename(folder.path)
        assert start.keeper.save_all({NAME: trainer}) == folder.run_state


def test_what_the_end_could_not_write_is_told(tmp_path: Path) -> None:
    """If the last state or model cannot be written, the end reports it and writes the rest."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        start.keeper.save_run_state({NAME: trainer})
        block(folder.previous_run_state)
        is_complete = start.keeper.finish({NAME: trainer}, Ending("signal"))
        assert (start.keeper.models, is_complete) == ({NAME: folder.final_model(NAME)}, False)
        shutil.rmtree(folder.previous_run_state)
        folder.final_model(NAME).unlink()
        block(folder.final_model(NAME))
        is_complete = start.keeper.finish({NAME: trainer}, Ending("signal"))
        assert (start.keeper.models, is_complete) == ({NAME: None}, False)
        assert folder.previous_run_state.is_file()
        shutil.rmtree(folder.path)
        is_complete = start.keeper.finish({NAME: trainer}, Ending("signal"))
        assert (start.keeper.models, is_complete) == ({NAME: None}, False)


def test_a_model_that_could_not_be_exported_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose model could not be exported counts as incomplete."""
    with begun(tmp_path, 1) as (_, start, trainer):

        def fail(_path: Path) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(trainer, "export_model", fail)
        is_complete = start.keeper.finish({NAME: trainer}, Ending("signal"))
        assert (start.keeper.models, is_complete) == ({NAME: None}, False)


def test_a_disk_that_stays_full_does_not_fill_the_log(tmp_path: Path) -> None:
    """A failed save is retried and logged once a minute; the last one is always logged."""
    with begun(tmp_path, 1) as (folder, start, trainer):
        start.keeper.save_run_state({NAME: trainer})
        start.train(trainer, 1)
        block(folder.previous_run_state)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                start.keeper.after_turn({NAME: trainer})
            assert [line["event"] for line in logs] == ["checkpoint_failed"]
            start.keeper.finish({NAME: trainer}, Ending("signal"))
        assert [line["event"] for line in logs] == ["checkpoint_failed"] * 2
        shutil.rmtree(folder.previous_run_state)
        start.keeper.after_turn({NAME: trainer})
        assert folder.previous_run_state.is_file()


def block(path: Path) -> None:
    """Makes a folder in the place of a file, which blocks writing for every user."""
    path.mkdir()
    (path / "file").write_text("in the way")


def test_another_run_gives_its_weights(tmp_path: Path) -> None:
    """--initialize-from loads networks and no counters."""
    with open_run_folder(tmp_path, "source") as folder:
        source = Start(folder, 1)
        trainer = source.join()
        source.train(trainer, 1)
        source.keeper.save_behavior(trainer)
    with open_run_folder(tmp_path, "run", initialize_from="source") as folder:
        target = Start(folder, 1).join()
        assert (target.version, target.get_step) == (0, 0)
        theirs = target.network.state_dict()
        assert all(torch.equal(value, theirs[name]) for name, value in trainer.network.state_dict().items())


def three_lessons() -> Lessons:
    """Returns a curriculum of three lessons."""
    return Lessons(parameters(mass=curriculum(1, 2, 3, behavior=NAME, threshold=5)), seed=0)


def test_lessons_are_saved_when_they_begin(tmp_path: Path) -> None:
    """A new lesson is saved in both files immediately, and the status file decides on a difference."""
    with opened(tmp_path) as folder:
        lessons = three_lessons()
        first = Start(folder, 1, lessons=lessons)
        first.keeper.restore_lessons()
        lessons.add_episode(NAME, 9.0, 1)
        first.keeper.save_lessons({})
    state = saved(tmp_path)
    with opened(tmp_path, resume=True) as folder:
        assert TrainingStatus.load(folder.training_status).lessons(["mass"]) == {"mass": 1}
        again = three_lessons()
        second = Start(folder, 2, lessons=again)
        second.restore(state)
        second.keeper.restore_lessons()
        assert again.state_dict() == lessons.state_dict()
        second.report()
        assert second.run_status.run_view(ViewState.TRAINING, "").lessons[0].number == 1
        second.store.status.set_lesson("mass", 2)
        second.keeper.restore_lessons()
        assert (again.numbers()["mass"], again.revision) == (2, 3)


def test_the_status_file_alone_keeps_the_lessons(tmp_path: Path) -> None:
    """A run state without lessons continues with those of the status file; a new run starts at the first."""
    with opened(tmp_path) as folder:
        lessons = three_lessons()
        first = Start(folder, 1, lessons=lessons)
        lessons.add_episode(NAME, 9.0, 1)
        first.keeper.save_lessons({})
    state = saved(tmp_path)
    older = replace(state, extra={name: part for name, part in state.extra.items() if name != "lessons"})
    for resume, number in ((True, 1), (False, 0)):
        with open_run_folder(tmp_path, "run", resume=resume, force=not resume) as folder:
            lessons = three_lessons()
            start = Start(folder, 2, lessons=lessons)
            if resume:
                start.restore(older)
            start.keeper.restore_lessons()
            assert lessons.numbers()["mass"] == number


def test_a_disk_that_does_not_take_lessons_ends_nothing(tmp_path: Path) -> None:
    """Lessons that cannot be saved are logged, and training continues in the new lesson."""
    with opened(tmp_path) as folder:
        lessons = three_lessons()
        start = Start(folder, 1, lessons=lessons)
        lessons.add_episode(NAME, 9.0, 1)
        folder.training_status.parent.mkdir(exist_ok=True)
        folder.training_status.mkdir()
        start.keeper.save_lessons({})
        assert "training_status.json" in start.reporting.last_error
        assert folder.run_state.exists()
        folder.training_status.rmdir()


@pytest.mark.parametrize("saves", [False, True])
def test_it_is_saved_where_the_run_file_says_so(tmp_path: Path, *, saves: bool) -> None:
    """A replay memory is saved with its behavior's checkpoint; a new run does not load it."""
    bench, trainer = make(hyper={"save_replay_buffer": saves})
    feed(bench, SyntheticActor(bench), trainer, 2)
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        start.keeper.save_behavior(trainer)
        start.keeper.save_run_state({})
        kept = folder.behavior("Continuous") / FILE_NAME
        assert kept.exists() is saves
    with open_run_folder(tmp_path, "run", force=True):
        assert not kept.exists()


def test_a_memory_that_cannot_be_written_costs_the_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    """A replay memory that cannot be written is logged, counted and retried."""
    bench, trainer = make(hyper={"save_replay_buffer": True})
    feed(bench, SyntheticActor(bench), trainer, 2)
    with opened(tmp_path) as folder:
        start = Start(folder, 1)
        (folder.behavior("Continuous") / FILE_NAME).mkdir()
        with pytest.raises(CheckpointFailed, match=FILE_NAME):
            start.keeper.save_behavior(trainer)
        start.keeper.save(trainer)
        assert start.reporting.last_error is not None


def spoiled(state: SavedRunState, case: str) -> SavedRunState:
    """Returns a state that is a readable file, and makes no sense."""
    row = state.behaviors_table["behaviors"][0]
    books = state.ledger[NAME]
    changes: dict[str, dict[str, Any]] = {
        "books": {"ledger": {NAME: {**books, "received": books["received"] + 1}}},
        "counter": {"ledger": {NAME: {**books, "received": "many"}}},
        "sessions": {"sessions": {"sessions": [{}], "places": {}, "ended": {}}},
        "spec": {"behaviors_table": {"behaviors": [{**row, "spec": b"\xff\xff"}]}},
        "empty spec": {"behaviors_table": {"behaviors": [{**row, "spec": b""}]}},
        "table": {"behaviors_table": {"behaviors": 3}},
        "no table": {"behaviors_table": {"behaviors": []}},
        "twice": {"behaviors_table": {"behaviors": [row, row]}},
        "clocks": {"extra": {"milestones": {NAME: {"wall_seconds": "long"}}}},
        "news": {"extra": {"news": {NAME: {"nonsense": 1}}}},
        "curves": {"extra": {"history": {NAME: {"interval": 1, "columns": {"t": [2.0, 1.0]}}}}},
        "extra": {"extra": {"milestones": 3}},
        "lessons": {"extra": {**state.extra, "lessons": {"numbers": 3}}},
    }
    return replace(state, **changes[case])


CASES = [
    "books",
    "counter",
    "sessions",
    "spec",
    "empty spec",
    "table",
    "no table",
    "twice",
    "clocks",
    "news",
    "curves",
    "extra",
    "lessons",
]


@pytest.fixture(scope="module")
def queued_state(tmp_path_factory: pytest.TempPathFactory) -> SavedRunState:
    """Returns the state of a run with queued steps and lessons."""
    results = tmp_path_factory.mktemp("results")
    with begun(results, lessons=three_lessons()) as (_, first, trainer):
        first.parts.ledger.enqueue(NAME, 7)
        first.keeper.save_run_state({NAME: trainer})
    return saved(results)


@pytest.mark.parametrize("case", CASES)
def test_a_state_that_makes_no_sense_is_refused(tmp_path: Path, queued_state: SavedRunState, case: str) -> None:
    """An invalid state is an error of one line that names the file and the options."""
    with open_run_folder(tmp_path, "run") as folder, pytest.raises(UserError, match="is inconsistent") as caught:
        Start(folder, 2, lessons=three_lessons()).restore(spoiled(queued_state, case))
    assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
    assert "run_state.pt" in caught.value.message


def numbers_of(part: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yields where the numbers of a state are."""
    if type(part) in (int, float):
        yield path
    for key, value in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from numbers_of(value, (*path, key))


ANY_NUMBER = frozenset({"log_prob_error_max", "mean_lag", "mean_return", "smoothed"})


def refused(start: Start, state: SavedRunState) -> str:
    """Returns the error of a start from a state, or an empty text."""
    try:
        start.restore(state)
    except UserError as error:
        return error.message
    return ""


def test_numbers_that_cannot_be_are_refused(tmp_path: Path) -> None:
    """Negative, non-finite and too large numbers in a state end the start with one line."""
    with begun(tmp_path, 1, lessons=three_lessons()) as (folder, first, trainer):
        first.parts.declared(first.parts.open("lost").session)
        first.parts.now += 1e6
        assert first.parts.sessions.expire()
        first.parts.declared(first.parts.open("here").session)
        first.keeper.save_run_state({NAME: trainer})
    state = saved(tmp_path)
    assert state.sessions["ended"]["records"]
    parts = {"ledger": state.ledger, "sessions": state.sessions, "extra": state.extra}
    told: dict[tuple[object, ...], str] = {}
    with opened(tmp_path, resume=True) as folder:
        for path in numbers_of(parts):
            if path[:2] in {("extra", "history"), ("extra", "seed")} or ANY_NUMBER & {*path}:
                continue
            for value in (-1, math.nan, 2**101):
                other = copy.deepcopy(parts)
                part: Any = other
                for key in path[:-1]:
                    part = part[key]
                part[path[-1]] = value
                broken = SavedRunState(
                    1, other["ledger"], other["sessions"], state.behaviors_table, state.trainers, other["extra"]
                )
                told[(*path, value)] = refused(Start(folder, 2, lessons=three_lessons()), broken)
    assert len(told) > 50
    assert [case for case, message in told.items() if "is inconsistent" not in message] == []
    assert [message for message in told.values() if "\n" in message] == []


def test_what_was_trained_needs_its_trainer_and_its_declaration(tmp_path: Path) -> None:
    """A behavior whose trainer's state or declaration is missing is an error."""
    state = saved_after_one_update(tmp_path)
    without: dict[str, SavedRunState] = {
        "trainer": replace(state, trainers={}),
        "declaration": replace(
            state,
            behaviors_table={"behaviors": []},
            sessions={
                "sessions": [],
                "places": {},
                "ended": {"taken_steps": {}, "gone_steps": {}, "given_up": {}, "records": {}},
            },
        ),
    }
    for part, broken in without.items():
        with (
            opened(tmp_path, resume=True) as folder,
            pytest.raises(UserError, match=f"its {part} is missing") as caught,
        ):
            Start(folder, 2).restore(broken)
        assert caught.value.exit_code is ExitCode.BAD_CHECKPOINT
