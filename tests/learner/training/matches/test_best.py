"""Tests the best checkpoint."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from learner.link.to_trainers import Actor, Actors
from learner.shared.leave_one_out import Source
from learner.shared.runfolder.choice import load_chosen
from learner.shared.runfolder.status import TrainingStatus
from learner.shared.runfolder.store import CheckpointStore
from learner.training.curriculum.lessons import Lessons
from learner.training.matches.best import BestKeeper, MeasuredPolicy
from learner.training.trainers.ppo.trainer import PPOTrainer
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, begun, opened
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.trainers.test_tally import make_chunk


class Watched:
    """A keeper with its events and clock."""

    def __init__(self, start: Start, *, evaluates: bool, lessons: Lessons | None = None) -> None:
        self.now = 100.0
        self.saved: list[tuple[str, int, Path]] = []
        self.failures: list[str] = []
        self.lessons = lessons or Lessons(None, seed=0)
        self.keeper = BestKeeper(
            start.store,
            self.lessons,
            evaluates=evaluates,
            on_best=lambda name, *best: start.meters.behavior(name).show_best(*best),
            every_seconds=6.0,
            on_saved=lambda *told: self.saved.append(told),
            on_not_saved=self.failures.append,
            clock=lambda: self.now,
        )


def best_return(start: Start) -> float:
    """Returns the shown value."""
    (behavior,) = start.parts.behaviors.all()
    start.report()
    return start.run_status.behavior_state(behavior).numbers["best_return"]


def returns(trainer: PPOTrainer, value: float, count: int = 100) -> None:
    """Fills the reward buffer."""
    trainer.reward_buffer.clear()
    trainer.reward_buffer.extend([value] * count)


def best_of(folder: Path) -> tuple[int, float | None, str]:
    """Returns step, reward and measure of the status file."""
    best = TrainingStatus.load(folder / "run_logs" / "training_status.json").best(NAME)
    assert best is not None
    return best.entry.steps, best.entry.reward, best.measure


def test_the_best_evaluation_stays_and_retention_leaves_it_alone(tmp_path: Path) -> None:
    """Only a better evaluation replaces the best checkpoint, and retention keeps it."""
    with begun(tmp_path) as (folder, start, trainer):
        watched = Watched(start, evaluates=True)
        start.train(trainer, 1)
        first = MeasuredPolicy.of(trainer)
        assert watched.keeper.note_evaluation(first, 10.0)
        start.train(trainer, 1)
        assert not watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 9.0)
        for _ in range(8):
            start.train(trainer, 1)
            start.keeper.save_behavior(trainer)
        assert best_of(folder.path) == (first.step, 10.0, "evaluation")
        files = {path.name for path in (folder.path / NAME).iterdir()}
        assert {"best.pt", "best.onnx"} < files
        assert f"{NAME}-{first.step}.pt" not in files
        found = load_chosen(folder.path, NAME, "best", start.store.status)
        assert (found.behavior, found.step, found.state["version"]) == (NAME, first.step, 1)
        assert [told[1] for told in watched.saved] == [first.step]


def test_what_is_kept_is_the_policy_that_was_measured(tmp_path: Path) -> None:
    """The checkpoint has the policy of the evaluation's start."""
    with begun(tmp_path) as (folder, start, trainer):
        watched = Watched(start, evaluates=True)
        candidate = MeasuredPolicy.of(trainer)
        start.train(trainer, 3)
        watched.keeper.note_evaluation(candidate, 1.0)
        assert load_chosen(folder.path, NAME, "best", start.store.status).state["version"] == 0


def test_without_evaluations_a_full_buffer_of_training_returns_decides(tmp_path: Path) -> None:
    """Without evaluations a full reward buffer decides, at most every few seconds and at the end."""
    with begun(tmp_path) as (folder, start, trainer):
        watched = Watched(start, evaluates=False)
        trainers = {NAME: trainer}

        def looked(value: float, count: int = 100, *, is_last: bool = False) -> int:
            returns(trainer, value, count)
            watched.keeper.after_turn(trainers, is_last=is_last)
            return len(watched.saved)

        assert looked(50.0, 99) == 0
        assert looked(5.0) == 1
        assert looked(6.0) == 1  # too soon
        watched.now += 7.0
        assert looked(4.0) == 1
        assert looked(7.0) == 2
        assert looked(8.0) == 2
        assert looked(8.5, is_last=True) == 3
        assert best_of(folder.path)[1:] == (8.5, "training")
        assert best_return(start) == 8.5


@pytest.mark.parametrize("other", ["a lesson", "a measure"])
def test_returns_of_another_lesson_or_measure_compare_with_nothing(tmp_path: Path, other: str) -> None:
    """The first result of another lesson or measure replaces the best one."""
    with begun(tmp_path) as (folder, start, trainer):
        lessons = Lessons(parameters(mass=curriculum(1, 2, behavior=NAME, threshold=50)), seed=0)
        watched = Watched(start, evaluates=True, lessons=lessons)
        assert watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 90.0)
        if other == "a lesson":
            lessons.set_numbers({"mass": 1})
            assert watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 3.0)
        else:
            returns(trainer, 3.0)
            Watched(start, evaluates=False, lessons=lessons).keeper.after_turn({NAME: trainer})
        assert best_of(folder.path)[1] == 3.0


def test_a_restart_remembers_it(tmp_path: Path) -> None:
    """After a restart a worse policy does not replace the best one, and the metrics show it."""
    with begun(tmp_path) as (folder, start, trainer):
        Watched(start, evaluates=True).keeper.note_evaluation(MeasuredPolicy.of(trainer), 10.0)
        start.keeper.save_run_state({NAME: trainer})
    with opened(tmp_path, resume=True) as folder:
        start = Start(folder, 2)
        trainer = start.join()
        watched = Watched(start, evaluates=True)
        watched.keeper.begin(trainer)
        assert best_return(start) == 10.0
        assert not watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 9.5)
        assert watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 10.5)
    with opened(tmp_path, resume=True) as folder:
        assert CheckpointStore(folder).status.best(NAME) is not None


def test_slow_writing_is_followed_by_a_rest(tmp_path: Path) -> None:
    """After a best checkpoint that took seconds, training returns cause the next ten times as long later."""
    with begun(tmp_path) as (_, start, trainer):
        watched = Watched(start, evaluates=False)
        save = start.store.save_best

        def slow(*args: Any, **options: Any) -> Path:
            watched.now += 3.0
            return save(*args, **options)

        start.store.save_best = slow  # type: ignore[method-assign]
        for seconds, value, saved in [(0.0, 5.0, 1), (26.0, 6.0, 1), (1.5, 7.0, 2)]:
            watched.now += seconds
            returns(trainer, value)
            watched.keeper.after_turn({NAME: trainer})
            assert len(watched.saved) == saved, value


def test_what_cannot_be_written_costs_the_checkpoint_and_not_the_run(tmp_path: Path) -> None:
    """A best checkpoint that cannot be written is reported, and a later one may succeed."""
    with begun(tmp_path) as (folder, start, trainer):
        watched = Watched(start, evaluates=True)
        blocked = folder.behavior(NAME) / "best.pt"
        blocked.mkdir()
        assert not watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 2.0)
        assert len(watched.failures) == 1
        assert start.store.status.best(NAME) is None
        blocked.rmdir()
        assert watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 2.0)


def test_no_actor_makes_the_best_policy_alone(tmp_path: Path) -> None:
    """Invented returns of one of two actors do not set the best return; it is the mean without them."""
    with begun(tmp_path) as (_, start, trainer):
        start.train(trainer, 1)
        roster, honest, hostile = trainer.context.roster, Source("", 0), Source("", 1)
        roster.newest = Actors(
            tuple(Actor(str(place), "", place, is_connected=True, agents={}, teams={}) for place in range(2))
        )
        for source in (honest, hostile):
            roster.note_sender(NAME, source)
        watched = Watched(start, evaluates=False)
        honest_mean = trainer.mean_return()
        trainer.episode_statistics.add(make_chunk([1e6] * 100), hostile)
        watched.keeper.after_turn({NAME: trainer})
        assert best_return(start) == pytest.approx(honest_mean)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_never_the_best(tmp_path: Path, value: float) -> None:
    """A result that no later one could exceed, or compare with, is not kept."""
    with begun(tmp_path) as (_, start, trainer):
        watched = Watched(start, evaluates=True)
        assert not watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), value)
        assert watched.keeper.note_evaluation(MeasuredPolicy.of(trainer), 1.0)


def test_training_returns_of_one_principal_do_not_outlast_those_of_two(tmp_path: Path) -> None:
    """A principal that was alone at first set an invented return; the first mean that two support replaces it."""
    with begun(tmp_path) as (folder, start, trainer):
        roster = trainer.context.roster
        watched = Watched(start, evaluates=False)

        def looked(*principals: str) -> tuple[int, float | None, str]:
            roster.newest = Actors(
                tuple(
                    Actor(name, "", place, is_connected=True, agents={}, teams={}, principal=name)
                    for place, name in enumerate(principals)
                )
            )
            for place, name in enumerate(principals):
                roster.note_sender(NAME, Source(name, place))
                trainer.episode_statistics.add(make_chunk([1e6 if name == "bad" else 5.0] * 100), Source(name, place))
            watched.now += 7.0
            watched.keeper.after_turn({NAME: trainer})
            return best_of(folder.path)

        assert looked("bad")[1] == 1e6
        assert looked("bad", "good")[1] == 5.0
        assert looked("bad")[1] == 5.0
