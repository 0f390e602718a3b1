"""What an assignment asks of a behavior id."""

from __future__ import annotations

from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from actor_client.rollout.assignment import Task, TaskReader


def asking(**part: object) -> policy_pb2.Assignment:
    """An assignment for team 1 of Ball."""
    entry = {"behavior": "Ball", "team": 1, "role": AssignmentRole.LEARN, **part}
    return policy_pb2.Assignment(id=7, episodes=5, behaviors=[policy_pb2.BehaviorAssignment(**entry)])  # type: ignore[arg-type]


def test_an_evaluation_is_read_whole() -> None:
    """Purpose, mode, version and episodes arrive, with the number that tells two evaluations apart."""
    message = asking(purpose=Purpose.EVALUATE, deterministic=True, version=12, generation=3)
    assert TaskReader().of(message, "Ball", 1) == Task(7, True, False, True, 3, 12, 5)


def test_without_an_entry_a_behavior_learns() -> None:
    """None, another team and another name leave the default: learn with the newest policy."""
    message = asking(purpose=Purpose.EVALUATE)
    assert {
        TaskReader().of(None, "Ball", 1),
        TaskReader().of(message, "Ball", 0),
        TaskReader().of(message, "Wall", 1),
    } == {Task()}


def test_learning_is_the_same_under_every_number() -> None:
    """Parameters that change, and so the assignment, change nothing of what a behavior id does."""
    assert TaskReader().of(asking(), "Ball", 1) == Task()
    assert TaskReader().of(asking(role=AssignmentRole.IDLE), "Ball", 1) == Task(idles=True)


def test_what_is_not_acted_on_is_said_once() -> None:
    """An opponent's role, an unknown one, demonstrations and learning with a pinned version leave it at learning."""
    strange = [
        asking(role=AssignmentRole.OPPONENT),
        asking(role=17),
        asking(purpose=Purpose.DEMO),
        asking(version=3),
    ]
    tasks = TaskReader()
    with capture_logs() as logs:
        assert {tasks.of(message, "Ball", 1) for message in (*strange, *strange)} == {Task()}
    assert [line["what"] for line in logs] == ["role 2", "role 17", "purpose 3", "learning with a pinned version"]
