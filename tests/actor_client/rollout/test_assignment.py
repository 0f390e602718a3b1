"""Tests which task an assignment gives a behavior id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rollcast.enums import AssignmentRole, Purpose
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from actor_client.rollout.assignment import Pinned, Seat, Task, TaskReader


def asking(**part: object) -> policy_pb2.Assignment:
    """Returns an assignment for team 1 of Ball."""
    entry = {"behavior": "Ball", "team": 1, "role": AssignmentRole.LEARN, **part}
    return policy_pb2.Assignment(id=7, episodes=5, behaviors=[policy_pb2.BehaviorAssignment(**entry)])  # type: ignore[arg-type]


def test_an_evaluation_is_read_whole() -> None:
    """Purpose, mode, version, episodes and number of an evaluation are read."""
    message = asking(purpose=Purpose.EVALUATE, deterministic=True, version=12, generation=3)
    assert TaskReader().of(message, "Ball", 1) == Task(7, True, False, True, 3, 12, 5)


def test_without_an_entry_a_behavior_learns() -> None:
    """The task is to learn with the newest policy without an entry for behavior and team, and under every number."""
    message = asking(purpose=Purpose.EVALUATE)
    learns = [(None, "Ball", 1), (message, "Ball", 0), (message, "Wall", 1), (asking(), "Ball", 1)]
    assert [TaskReader().of(*each) for each in learns] == [Task()] * 4
    assert TaskReader().of(asking(role=AssignmentRole.IDLE), "Ball", 1) == Task(idles=True)


def test_what_is_not_acted_on_is_said_once() -> None:
    """Unsupported tasks are reported once and treated as learning; where there are no opponents, they wait."""
    strange = [
        asking(role=AssignmentRole.OPPONENT),
        asking(role=17),
        asking(purpose=Purpose.DEMO),
        asking(version=3),
    ]
    tasks = TaskReader()
    with capture_logs() as logs:
        found = [tasks.of(message, "Ball", 1) for message in (*strange, *strange)]
    assert found == 2 * [Task(idles=True), Task(), Task(), Task()]
    assert [line["what"] for line in logs] == ["role 2", "role 17", "purpose 3", "training with a pinned version"]


def test_the_seats_of_a_match() -> None:
    """Each side knows the other; a digest pins version 0, and an opponent without version plays the newest policy."""
    learns = policy_pb2.BehaviorAssignment(behavior="Ball", team=0, role=policy_pb2.ASSIGNMENT_ROLE_LEARN, match=3)
    plays = policy_pb2.BehaviorAssignment(
        behavior="Wall", team=1, role=policy_pb2.ASSIGNMENT_ROLE_OPPONENT, match=3, generation=2, sha256=b"x"
    )
    message = policy_pb2.Assignment(id=8, behaviors=[learns, plays])
    tasks = TaskReader(has_opponents=True)
    pinned = Pinned(2, 0, b"x")
    first, second = tasks.of(message, "Ball", 0), tasks.of(message, "Wall", 1)
    assert first.seat == Seat(3, 0, opponent="Wall?team=1", opponent_policy=pinned)
    assert second.seat == Seat(3, 1, is_opponent=True, policy=pinned, opponent="Ball?team=0")
    assert (first.role, second.role, first.told_by) == (AssignmentRole.LEARN, AssignmentRole.OPPONENT, 8)
    plays.ClearField("sha256")
    newest = tasks.of(policy_pb2.Assignment(behaviors=[plays]), "Wall", 1)
    assert newest.seat == Seat(3, 1, is_opponent=True)
    message.id = 9
    assert tasks.of(message, "Ball", 0) == first
    assert tasks.of(message, "Ball", 0).told_by == 9


def test_the_seats_of_a_tournament() -> None:
    """Where all are opponents, the sides are the teams; episodes are limited and begin with random actions."""
    opponent = policy_pb2.ASSIGNMENT_ROLE_OPPONENT
    common: dict[str, Any] = {"behavior": "Ball", "role": opponent, "match": 3, "random_steps": 2}
    seats = [
        policy_pb2.BehaviorAssignment(team=0, sha256=b"x", **common),
        policy_pb2.BehaviorAssignment(team=1, deterministic=True, **common),
    ]
    message = policy_pb2.Assignment(id=8, episodes=20, behaviors=seats)
    tasks = TaskReader(has_opponents=True)
    first, second = (tasks.of(message, "Ball", team).seat for team in (0, 1))
    assert first is not None
    pinned = Pinned(0, 0, b"x")
    assert first == Seat(3, 0, is_opponent=True, policy=pinned, opponent="Ball?team=1", episodes=20, random_steps=2)
    other: dict[str, Any] = {"opponent": "Ball?team=0", "opponent_policy": pinned, "deterministic": True}
    assert second == replace(first, team=1, policy=None, **other)
    seats[0].role = policy_pb2.ASSIGNMENT_ROLE_LEARN
    learning = policy_pb2.Assignment(id=9, episodes=20, behaviors=seats)
    assert {tasks.of(learning, "Ball", team).seat.episodes for team in (0, 1)} == {0}  # type: ignore[union-attr]
