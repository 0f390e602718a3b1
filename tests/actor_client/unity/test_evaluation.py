"""Tests evaluations on the gateway."""

from __future__ import annotations

from typing import Any

from rollcast.enums import AssignmentRole, Purpose
from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, STEP
from rollcast.v1 import policy_pb2

from tests.actor_client.acting import column
from tests.actor_client.unity.harness import ball
from tests.actor_client.unity.test_gateway import is_held, one_playing


def asking(number: int, episodes: int = 0, **part: Any) -> policy_pb2.Assignment:
    """Returns an assignment for the ball."""
    entry = policy_pb2.BehaviorAssignment(behavior="Ball", role=AssignmentRole.LEARN, **part)  # type: ignore[arg-type]
    return policy_pb2.Assignment(id=number, episodes=episodes, behaviors=[entry])


def test_a_player_is_reset_and_its_whole_episodes_are_reported() -> None:
    """An evaluation resets the player, reports the quota's episodes without rows, and then waits."""
    with one_playing() as (learner, served, player):
        for _ in range(3):
            player.step(Ball=[ball(0, reward=1.0)])
        learner.assign(asking(1, 2, purpose=Purpose.EVALUATE))
        served.follow(1)
        assert player.step(Ball=[ball(0, reward=1.0)]).command == RESET
        produced = served.books().produced
        for episode in (1, 2):
            assert player.step(Ball=[ball(episode)]).command == STEP
            player.step(Ball=[ball(episode, reward=5.0)])
            coming = player.soon(player.report({"Ball": [ball(episode, reward=5.0, done=True), ball(episode + 1)]}))
            if episode == 1:
                coming.result()
        learner.wait_until(lambda: len(column(learner, "episode/return")) == 2)
        assert is_held(served, coming)
        assert column(learner, "episode/return") == [10.0, 10.0]
        assert column(learner, "episode/purpose") == [Purpose.EVALUATE] * 2
        assert served.books().produced == produced == 3

        learner.assign(asking(2))
        assert coming.result().unity_input.rl_input.command == RESET
        player.step(Ball=[ball(9)])
        player.step(Ball=[ball(9, reward=1.0)])
        player.step(Ball=[ball(9, reward=1.0, done=True)])
        learner.wait_until(lambda: served.rows() == 5)
        learner.wait_until(lambda: len(column(learner, "episode/return")) == 3)
        assert column(learner, "episode/length")[-1] == 2


def test_an_evaluation_needs_no_credit() -> None:
    """An evaluation continues without credit, but training does not."""
    with one_playing(steps_through=1) as (learner, served, player):
        coming = player.soon(player.report({"Ball": [ball(0, reward=1.0)]}))
        assert is_held(served, coming)
        learner.assign(asking(1, 1, purpose=Purpose.EVALUATE, deterministic=True))
        assert coming.result().unity_input.rl_input.command == RESET
        player.step(Ball=[ball(1)])
        player.step(Ball=[ball(1, reward=1.0)])
        coming = player.soon(player.report({"Ball": [ball(1, reward=1.0, done=True), ball(2)]}))
        learner.wait_until(lambda: column(learner, "episode/length") == [2])
        learner.assign(asking(2))
        coming.result()


def test_an_idle_player_waits_and_is_not_reset() -> None:
    """IDLE holds the exchange; learning answers it and continues the episode."""
    with one_playing() as (learner, served, player):
        idle = asking(1)
        idle.behaviors[0].role = policy_pb2.ASSIGNMENT_ROLE_IDLE
        learner.assign(idle)
        served.follow(1)
        coming = player.soon(player.report({"Ball": [ball(0, reward=1.0)]}))
        assert is_held(served, coming)
        learner.assign(asking(2))
        assert coming.result().unity_input.rl_input.command == STEP
        player.step(Ball=[ball(0, reward=1.0, done=True)])
        learner.wait_until(lambda: column(learner, "episode/length") == [2])
