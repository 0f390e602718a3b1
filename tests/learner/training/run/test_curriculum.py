"""Tests the start of a lesson."""

from __future__ import annotations

from pathlib import Path

from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from learner.link.to_front import Assign, ToFront
from learner.shared.settings.options import RunOptions
from learner.training.curriculum.lessons import LessonChange, Lessons
from learner.training.run.training import CurriculumController
from tests.learner.service.ingest.parts import NAME
from tests.learner.starts import Start, opened, saved
from tests.learner.training.curriculum.curricula import curriculum


def run_of(**behaviors: object) -> RunOptions:
    """Returns a run file with two lessons for the tests' behavior."""
    written = curriculum(1, 2, behavior=NAME, threshold=5, require_reset=True)
    return RunOptions.model_validate({**behaviors, "environment_parameters": {"mass": written}})


def test_a_lesson_is_saved_before_actors_hear_of_it(tmp_path: Path) -> None:
    """The run state is saved before the assignment is sent, and nothing happens without a new lesson."""
    told: list[policy_pb2.Assignment] = []
    begun: list[LessonChange] = []
    with opened(tmp_path) as folder:
        lessons = Lessons(run_of(behaviors={NAME: {}}).environment_parameters, seed=0)
        start = Start(folder, 1, lessons=lessons)

        def send(command: ToFront) -> None:
            assert folder.run_state.exists()
            assert isinstance(command, Assign)
            told.append(command.assignment)

        curriculum = CurriculumController(lessons, start.keeper.save_lessons, send, on_begun=begun.append)
        curriculum.after_turn({})
        assert not folder.run_state.exists()
        lessons.add_episode(NAME, 9.0, 1)
        with capture_logs() as logs:
            curriculum.after_turn({})
            curriculum.after_turn({})
    assert [(line["event"], line["parameter"], line["lesson"]) for line in logs] == [
        ("lesson_begun", "mass", "lesson1")
    ]
    assert [(change.parameter, change.lesson) for change in begun] == [("mass", "lesson1")]
    (assignment,) = told
    assert (assignment.settings_revision, assignment.reset) == (2, policy_pb2.RESET_MODE_NOW)
    assert assignment.environment_parameters["mass"].constant == 2.0
    assert saved(tmp_path).extra["lessons"]["numbers"] == {"mass": 1}
