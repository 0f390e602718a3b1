"""Tests when lessons end."""

from __future__ import annotations

import pytest
from rollcast.v1 import policy_pb2

from learner.shared.leave_one_out import Source
from learner.training.curriculum.lessons import Lessons, no_lessons
from tests.learner.training.curriculum.curricula import curriculum, parameters


def lessons_of(**written: object) -> Lessons:
    """Returns the lessons of a run with seed 0."""
    return Lessons(parameters(**written), seed=0)


def play(lessons: Lessons, *returns: float, behavior: str = "A") -> None:
    """Finishes episodes that started with the current parameters."""
    for value in returns:
        lessons.add_episode(behavior, value, lessons.revision)


def test_without_parameters_there_is_nothing_to_say() -> None:
    """A run file without parameters sends none."""
    lessons = no_lessons()
    play(lessons, 1.0, 2.0)
    lessons.note_progress("A", 0.5)
    assert (lessons.assignment(), lessons.revision, lessons.take_changes(), lessons.view()) == (None, 0, [], ())


def test_constants_are_told_and_never_change() -> None:
    """Constants have one lesson and revision 1, in the run file's order."""
    lessons = lessons_of(mass=3, gravity=9.5)
    assignment = lessons.assignment()
    assert assignment is not None
    assert list(assignment.parameter_order) == ["mass", "gravity"]
    assert (assignment.settings_revision, assignment.reset) == (1, policy_pb2.RESET_MODE_NONE)
    assert assignment.environment_parameters["gravity"].constant == 9.5
    reset = lessons.assignment(reset=True)
    assert reset is not None
    assert reset.reset == policy_pb2.RESET_MODE_NOW
    play(lessons, *[100.0] * 50)
    assert (lessons.take_changes(), lessons.revision) == ([], 1)


def test_a_lesson_is_over_when_the_mean_is_more_than_the_threshold() -> None:
    """A lesson ends when the mean exceeds the threshold, and the revision grows."""
    lessons = lessons_of(mass=curriculum(1, 2, threshold=10, min_lesson_length=2))
    play(lessons, 10.0, 10.0)
    assert lessons.take_changes() == []
    play(lessons, 10.5)
    (change,) = lessons.take_changes()
    assert (change.parameter, change.number, change.lessons) == ("mass", 1, 2)
    assert (change.completed, change.lesson, change.require_reset) == ("lesson0", "lesson1", False)
    assignment = lessons.assignment()
    assert assignment is not None
    assert assignment.environment_parameters["mass"].constant == 2.0
    assert (assignment.settings_revision, lessons.since_revision) == (2, 2)
    assert lessons.view()[0].name == "lesson1"


def test_a_lesson_lasts_at_least_as_many_episodes_as_it_asks_for() -> None:
    """A lesson lasts at least min_lesson_length episodes."""
    lessons = lessons_of(mass=curriculum(1, 2, threshold=10, min_lesson_length=3))
    play(lessons, 1000.0, 1000.0)
    assert lessons.take_changes() == []
    play(lessons, -5000.0, 0.0, 0.0)
    assert lessons.take_changes() == []
    play(lessons, 40.0)
    assert [change.number for change in lessons.take_changes()] == [1]


def test_a_lesson_of_no_length_looks_at_the_newest_episode() -> None:
    """Without min_lesson_length one episode is the mean."""
    lessons = lessons_of(mass=curriculum(1, 2, threshold=10))
    play(lessons, 9.0)
    lessons.note_progress("A", 0.9)
    assert lessons.take_changes() == []
    play(lessons, 11.0)
    assert len(lessons.take_changes()) == 1


def test_measures_do_not_mix() -> None:
    """Each lesson reads its own measure, and a saved state keeps them apart."""
    lessons = lessons_of(
        mass=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="evaluation"),
        wind=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="statistic", statistic="Goals"),
        size=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="group_reward"),
    )
    assert lessons.measures("A") == {"evaluation", "statistic Goals", "group_reward"}
    play(lessons, 99.0, 99.0)
    lessons.add_evaluation("A", 20.0)
    lessons.add_evaluation("B", 20.0)
    lessons.add_statistic("A", "Goals", 20.0)
    lessons.add_statistic("A", "Others", 20.0)
    lessons.add_episode("A", 0.0, lessons.revision, {"group_reward": 20.0})
    assert lessons.take_changes() == []
    resumed = lessons_of(
        mass=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="evaluation"),
        wind=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="statistic", statistic="Goals"),
        size=curriculum(1, 2, threshold=10, min_lesson_length=2, measure="group_reward"),
    )
    resumed.load_state_dict(lessons.state_dict())
    resumed.add_evaluation("A", 20.0)
    assert [change.parameter for change in resumed.take_changes()] == ["mass"]
    lessons.add_statistic("A", "Goals", 20.0)
    assert [change.parameter for change in lessons.take_changes()] == ["wind"]


def test_progress_is_steps_by_max_steps() -> None:
    """The measure progress is steps divided by max_steps and advances one lesson at a time."""
    lessons = lessons_of(mass=curriculum(1, 2, 3, measure="progress", threshold=0.5))
    lessons.note_progress("B", 0.9)
    lessons.note_progress("A", 0.5)
    assert lessons.take_changes() == []
    lessons.note_progress("A", 0.6)
    assert [change.number for change in lessons.take_changes()] == [1]
    lessons.note_progress("A", 0.61)
    assert [change.number for change in lessons.take_changes()] == [2]


def test_episodes_of_other_revisions_do_not_count() -> None:
    """Episodes of other revisions do not count."""
    lessons = lessons_of(mass=curriculum(1, 2, 3, threshold=10))
    for revision in (0, 2, None):
        lessons.add_episode("A", 100.0, revision)
    assert lessons.take_changes() == []
    play(lessons, 100.0)
    lessons.add_episode("A", 100.0, 1)
    assert [change.number for change in lessons.take_changes()] == [1]


def test_a_new_lesson_empties_the_buffers_of_all_behaviors() -> None:
    """A new lesson clears the buffers of all behaviors."""
    lessons = lessons_of(
        mass=curriculum(1, 2, threshold=10),
        wind=curriculum(1, 2, behavior="B", threshold=10, min_lesson_length=2),
    )
    play(lessons, 100.0, behavior="B")
    play(lessons, 100.0, behavior="A")
    play(lessons, 100.0, behavior="B")
    assert [change.parameter for change in lessons.take_changes()] == ["mass"]
    play(lessons, 100.0, behavior="B")
    assert [change.parameter for change in lessons.take_changes()] == ["wind"]


def test_several_parameters_may_change_at_once() -> None:
    """If several parameters change together, the revision grows once."""
    lessons = lessons_of(mass=curriculum(1, 2, threshold=1), wind=curriculum(5, 6, threshold=2, require_reset=True))
    play(lessons, 3.0)
    changes = lessons.take_changes()
    assert [(change.parameter, change.require_reset) for change in changes] == [("mass", False), ("wind", True)]
    assert lessons.revision == 2
    assert dict(lessons.numbers()) == {"mass": 1, "wind": 1}


def test_the_last_lesson_has_no_end() -> None:
    """The criteria of the last lesson are ignored."""
    last = {"name": "only", "value": 1, "completion_criteria": {"behavior": "A", "threshold": 0}}
    lessons = lessons_of(mass={"curriculum": [last]})
    play(lessons, 100.0)
    assert lessons.take_changes() == []


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_return_that_is_no_number_does_not_count(value: float) -> None:
    """A NaN return does not count."""
    lessons = lessons_of(mass=curriculum(1, 2, threshold=10, min_lesson_length=2))
    play(lessons, value, value, 20.0)
    assert lessons.take_changes() == []
    play(lessons, 20.0)
    assert len(lessons.take_changes()) == 1


def test_a_restart_goes_on_in_the_same_lesson() -> None:
    """A restart continues with lesson, revision, smoothed reward and episodes."""
    written = {"mass": curriculum(1, 2, 3, threshold=10, min_lesson_length=2, signal_smoothing=True)}
    before = lessons_of(**written)
    play(before, 20.0, 20.0, 12.0)
    after = lessons_of(**written)
    after.load_state_dict(before.state_dict())
    assert after.state_dict() == before.state_dict()
    assert (after.numbers()["mass"], after.revision, after.since_revision) == (1, 2, 2)
    play(after, 12.0)
    play(before, 12.0)
    assert after.state_dict() == before.state_dict()


def test_another_run_file_is_another_revision() -> None:
    """Changed parameters in the run file are a new revision; a removed lesson becomes the last one."""
    before = lessons_of(mass=curriculum(1, 2, 3, threshold=10))
    play(before, 20.0)
    play(before, 20.0)
    after = lessons_of(mass=curriculum(1, 7, threshold=10), wind=3)
    after.load_state_dict(before.state_dict())
    assert dict(after.numbers()) == {"mass": 1, "wind": 0}
    assert after.revision == after.since_revision == before.revision + 1


def test_the_status_file_may_be_ahead() -> None:
    """Lessons in the status file that differ from the run state start a new revision."""
    lessons = lessons_of(mass=curriculum(1, 2, 3, threshold=10))
    lessons.set_numbers({"mass": 0, "gone": 5})
    assert lessons.revision == 1
    lessons.set_numbers({"mass": 99})
    assert (lessons.numbers()["mass"], lessons.revision, lessons.since_revision) == (2, 2, 2)
    assert lessons.take_changes() == []


@pytest.mark.parametrize("state", [{"numbers": 3}, {"numbers": {"mass": "x"}}, {"numbers": {}}])
def test_a_state_that_is_none_is_told(state: dict[str, object]) -> None:
    """An invalid state raises the error of a damaged run state."""
    with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
        lessons_of(mass=3).load_state_dict(state)


@pytest.mark.parametrize("measure", ["reward", "statistic"])
def test_no_actor_completes_a_lesson_alone(measure: str) -> None:
    """A lesson ends once its measure exceeds the threshold without any one of the actors, too."""
    honest, hostile = Source("lab", 0), Source("evil", 1)
    criteria = {"measure": measure, **({"statistic": "Goals"} if measure == "statistic" else {})}
    written = parameters(mass=curriculum(1, 2, behavior="A", threshold=10, min_lesson_length=2, **criteria))
    lessons = Lessons(written, seed=0, present=lambda _: [honest, hostile])

    def report(value: float, source: Source) -> int:
        if measure == "statistic":
            lessons.add_statistic("A", "Goals", value, source)
        else:
            lessons.add_episode("A", value, lessons.revision, source=source)
        return lessons.numbers()["mass"]

    assert [report(1e6, hostile) for _ in range(5)] == [0] * 5
    assert report(5.0, honest) == 0
    again = Lessons(written, seed=0, present=lambda _: [honest, hostile])
    again.load_state_dict(lessons.state_dict())
    lessons = again
    assert report(11.0, honest) == 0, "the mean of 5 and 11 is below 10"
    assert report(12.0, honest) == 1


def test_the_reward_is_smoothed_if_the_lesson_wants_it() -> None:
    """A smoothed reward is a quarter of the old and three quarters of the new value, from 0 on.

    It is also looked at when steps arrive, and continues in the next lesson.
    """
    written = {"mass": curriculum(1, 2, 3, threshold=0.95, signal_smoothing=True)}
    lessons, slow = lessons_of(**written), lessons_of(**written)
    play(lessons, 1.0, 1.0)
    assert lessons.take_changes() == []
    play(lessons, 1.0)
    assert len(lessons.take_changes()) == 1
    play(slow, 1.0)
    slow.note_progress("A", 0.1)
    slow.note_progress("A", 0.2)
    assert len(slow.take_changes()) == 1
    play(lessons, 0.95)
    assert len(lessons.take_changes()) == 1, "0.25 * 0.98 + 0.75 * 0.95 is more than 0.95, 0.75 * 0.95 is not"


@pytest.mark.parametrize(("others", "number"), [(10.0, 0), (10.01, 1)])
def test_the_mean_without_one_actor_must_exceed_the_threshold_too(others: float, number: int) -> None:
    """A mean without one of the actors that equals the threshold completes no lesson."""
    first, second = Source("lab", 0), Source("lab", 1)
    written = parameters(mass=curriculum(1, 2, behavior="A", threshold=10, min_lesson_length=2))
    lessons = Lessons(written, seed=0, present=lambda _: [first, second])
    lessons.add_episode("A", others, 1, source=first)
    lessons.add_episode("A", 30.0, 1, source=second)
    assert lessons.numbers()["mass"] == number
