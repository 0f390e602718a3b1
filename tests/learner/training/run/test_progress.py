"""Tests what a run leaves on the screen and in its folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import structlog

from learner.link.to_trainers import Actor, Actors
from learner.shared.leave_one_out import Source
from learner.shared.observe.summary import BehaviorSummary
from learner.training.curriculum.lessons import Lessons, no_lessons
from learner.training.run.progress import Progress, SummaryWriter
from learner.training.trainers.parts import Ending
from learner.training.trainers.ppo.trainer import PPOTrainer
from learner.training.trainers.roster import Roster
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, begun, opened
from tests.learner.training.curriculum.curricula import curriculum, parameters
from tests.learner.training.trainers.test_tally import make_chunk


def test_the_printed_summary_tells_what_the_file_tells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """File and text have the same reason, books and model."""
    with opened(tmp_path) as folder:
        start = Start(folder, 3)
        start.join()
        start.parts.ledger.reject(NAME, "not_finite", 12)
        behavior, status = start.parts.behaviors.all()[0], start.run_status
        summary = BehaviorSummary.of(status.behavior_state(behavior), status.milestones(NAME))
        writer = SummaryWriter(folder, {NAME: folder.final_model(NAME)}, Roster(), generation=3)
        assert writer.finish({}, Ending("target_return", summaries={NAME: summary}))
        content = json.loads((folder.path / "summary.json").read_text())
    said = capsys.readouterr().out
    assert (content["run_id"], content["generation"], content["stop_reason"]) == ("run", 3, "target_return")
    assert content["ledger"]["dropped"] == {"not_finite": 12}
    assert content["onnx_path"] == str(folder.final_model(NAME))
    assert "run run, generation 3, ended: target_return is reached" in said
    assert "not_finite 12" in said


def test_a_full_disk_costs_the_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On a full disk the summary is printed and the error of the file is logged."""
    with opened(tmp_path) as folder:
        folder.path.rename(tmp_path / "aside")
        with structlog.testing.capture_logs() as logs:
            writer = SummaryWriter(folder, {}, Roster(), generation=1)
            assert not writer.finish({}, Ending("signal"))
    assert [line["event"] for line in logs] == ["summary_failed"]
    assert "summary.json" in logs[0]["error"]
    assert "run run, generation 1, ended: it was asked to stop" in capsys.readouterr().out


def test_a_run_that_nobody_ended_leaves_the_summary_of_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An internal error keeps the previous summary and prints none."""
    with opened(tmp_path) as folder:
        assert SummaryWriter(folder, {}, Roster(), generation=1).finish(
            {}, Ending("error", ValueError("x"), has_settled=False)
        )
        assert not (folder.path / "summary.json").exists()
    assert capsys.readouterr().out == ""


def play(trainer: PPOTrainer, roster: Roster, place: int, value: float, count: int) -> None:
    """Lets an actor report episodes of one return, with steps."""
    source = Source("", place)
    roster.note_sender(NAME, source)
    trainer.episode_statistics.add(make_chunk([value] * count), source)


@pytest.mark.parametrize("hostile", [1, 2, 7])
def test_no_actor_reaches_the_target_alone(tmp_path: Path, hostile: int) -> None:
    """Invented returns under any number of names end no run; once the others reach the target, it is reached."""
    with begun(tmp_path) as (_, _, trainer):
        roster = trainer.context.roster
        actors = [
            Actor(str(place), str(place), place, is_connected=True, agents={}, teams={}) for place in range(1 + hostile)
        ]
        roster.newest = Actors(tuple(actors))
        progress = Progress(50.0, lambda: None, lambda _: 1, lessons=no_lessons())
        roster.note_sender(NAME, Source("", 0))  # its first episode has not ended
        for place in range(hostile):
            play(trainer, roster, 1 + place, 1e9, 200)
        progress.after_turn({NAME: trainer})
        assert not progress.at_target
        play(trainer, roster, 0, 20.0, 10)
        for place in range(hostile):
            play(trainer, roster, 1 + place, 1e9, 200)
        progress.after_turn({NAME: trainer})
        assert not progress.at_target
        play(trainer, roster, 0, 60.0, 100)
        progress.after_turn({NAME: trainer})
        assert progress.at_target == {NAME}


def test_an_actor_that_has_gone_leaves_the_decision_to_the_others(tmp_path: Path) -> None:
    """Low returns of an actor that has left do not keep a single one from the target."""
    with begun(tmp_path) as (_, _, trainer):
        roster = trainer.context.roster
        progress = Progress(50.0, lambda: None, lambda _: 1, lessons=no_lessons())
        roster.newest = Actors((Actor("0", "0", 0, is_connected=True, agents={}, teams={}),))
        play(trainer, roster, 1, 1.0, 100)
        play(trainer, roster, 0, 60.0, 100)
        progress.after_turn({NAME: trainer})
        assert progress.at_target == {NAME}


def test_the_target_counts_in_the_last_lesson_only(tmp_path: Path) -> None:
    """An easy first lesson does not end the run."""
    lessons = Lessons(parameters(mass=curriculum(1, 2, behavior=NAME, threshold=1000)), seed=0)
    with begun(tmp_path) as (_, _, trainer):
        progress = Progress(50.0, lambda: None, lambda _: 1, lessons=lessons)
        trainer.reward_buffer.clear()
        trainer.reward_buffer.extend([60.0] * 100)
        progress.after_turn({NAME: trainer})
        assert not progress.at_target
        lessons.set_numbers({"mass": 1})
        progress.after_turn({NAME: trainer})
        assert progress.at_target == {NAME}


@pytest.mark.parametrize(
    ("returns", "target", "expected"),
    [
        ([50.0] * 100, 50.0, True),
        ([50.0] * 100, 50.1, False),
        ([50.0] * 100, None, False),
        ([99.0] * 99, 50.0, False),
        ([], 50.0, False),
    ],
)
def test_the_target_is_reached_by_a_full_mean_only(
    tmp_path: Path, returns: list[float], target: float | None, expected: bool
) -> None:
    """The target needs a full mean of episodes."""
    with begun(tmp_path) as (_, _, trainer):
        ends: list[bool] = []
        progress = Progress(target, lambda: ends.append(True), lambda _: 1, lessons=no_lessons())
        trainer.reward_buffer.clear()
        trainer.reward_buffer.extend(returns)
        progress.after_turn({NAME: trainer})
        assert progress.at_target == ({NAME} if expected else set())
        assert bool(ends) is expected
        trainer.reward_buffer.clear()
        progress.after_turn({NAME: trainer})
        assert progress.at_target == ({NAME} if expected else set()), "it has been there"
