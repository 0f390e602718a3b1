"""Tests what the learner asks of a gateway's clients: evaluations and matches; and groups and masks of their agents."""

from __future__ import annotations

import numpy as np
from rollcast.chunks import GameResult
from rollcast.enums import GroupEnd, Purpose
from rollcast.v1 import client_pb2, policy_pb2

from tests.actor_client.acting import column, columns
from tests.actor_client.clients.harness import serving
from tests.actor_client.clients.test_gateway import begin, playing
from tests.actor_client.scripted import ScriptedLearner
from tests.playing import ENDED, Player, report

LEARN, OPPONENT = policy_pb2.ASSIGNMENT_ROLE_LEARN, policy_pb2.ASSIGNMENT_ROLE_OPPONENT


def test_an_evaluation_resets_clients_and_counts_whole_episodes() -> None:
    """Its episodes are reported without rows, and one of a client that leaves does not count."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served, 2) as players:
        begin(served, players)
        part = policy_pb2.BehaviorAssignment(behavior="Ball", role=LEARN, purpose=Purpose.EVALUATE)
        learner.assign(policy_pb2.Assignment(id=1, episodes=2, behaviors=[part]))
        served.follow(1)
        assert all(player.step(report(rewards=[1.0])).reset for player in players)
        produced = served.books().produced
        one, other = players
        assert other.step(report()).actions, "this episode begins, counts, and is lost"
        other.leave()
        served.left(1)
        for _ in range(2):
            assert one.step(report()).actions
            assert one.step(report(rewards=[5.0])).actions
            assert not one.step(report(rewards=[5.0], states=[ENDED])).actions
        learner.wait_until(lambda: len(column(learner, "episode/return")) == 2)
        assert column(learner, "episode/return") == [10.0, 10.0]
        assert column(learner, "episode/purpose") == [Purpose.EVALUATE] * 2
        assert served.books().produced == produced


def test_who_leaves_during_an_evaluation_leaves_no_step_to_the_next() -> None:
    """An agent that was answered before it is forgotten with its client, whose seat another one gets."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served, 2) as players:
        begin(served, players)
        assert all(player.step(report(rewards=[1.0])).actions for player in players)
        part = policy_pb2.BehaviorAssignment(behavior="Ball", role=LEARN, purpose=Purpose.EVALUATE)
        learner.assign(policy_pb2.Assignment(id=1, episodes=2, behaviors=[part]))
        served.follow(1)
        assert all(player.step(report(rewards=[1.0])).reset for player in players)
        one, other = players
        one.leave()
        served.left(1)
        learner.assign(policy_pb2.Assignment(id=2))
        served.follow(2)
        assert other.step(report()).reset
        produced = served.books().produced
        with playing(served) as (late,):
            assert late.step(report(rewards=[9.0])).actions
            assert served.books().produced == produced
            assert late.step(report(rewards=[1.0])).actions
            learner.wait_until(lambda: served.books().produced == produced + 1)


def both(player: Player, *states: int, outcomes: tuple[int, int] = (0, 0)) -> client_pb2.PlayResponse:
    """Reports an agent of each team."""
    return player.step(
        *(
            report(behavior=f"Ball?team={team}", states=states, rewards=[0.0], outcomes=[outcome])
            for team, outcome in enumerate(outcomes)
        )
    )


def test_two_teams_play_and_say_who_won() -> None:
    """The opponent plays the pinned policy, only the learner's rows are recorded, and outcomes decide the game."""
    with ScriptedLearner() as learner:
        learner.awaits = {"Ball"}
        with serving(learner) as served, playing(served) as (player,):
            steps = [report(behavior=f"Ball?team={team}") for team in (0, 1)]
            coming = player.soon(client_pb2.PlayRequest(steps=steps))
            served.publish(logits=[50.0, 0.0])
            pinned = served.keep(3, logits=[0.0, 50.0])
            parts = [policy_pb2.BehaviorAssignment(behavior="Ball", team=team, match=5) for team in (0, 1)]
            parts[0].role, parts[1].role = LEARN, OPPONENT
            parts[1].generation, parts[1].version, parts[1].sha256 = pinned.generation, pinned.version, pinned.sha256
            learner.assign(policy_pb2.Assignment(id=1, behaviors=parts))
            chosen = {each.behavior: list(each.discrete) for each in coming.result(20.0).actions}
            assert chosen == {"Ball?team=0": [0], "Ball?team=1": [1]}
            both(player, client_pb2.AGENT_STATE_UNSPECIFIED)
            won = client_pb2.OUTCOME_WON, client_pb2.OUTCOME_LOST
            assert not both(player, ENDED, outcomes=won).actions
            learner.wait_until(lambda: len(column(learner, "episode/match")) == 2)
            results = dict(zip(column(learner, "episode/team"), column(learner, "episode/result"), strict=True))
            assert results == {0: GameResult.WON, 1: GameResult.LOST}
            assert served.books().produced == 2


def test_agents_of_a_group_end_together() -> None:
    """Segments of mates carry their group, and group rewards their own column."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        coming = player.soon(client_pb2.PlayRequest(steps=[report([0, 1], [0.0, 1.0], groups=[4, 4])]))
        served.publish()
        assert coming.result(20.0).actions
        player.step(report([0], groups=[4], group_rewards=[2.0], states=[ENDED]))
        player.step(report([1], groups=[4], group_rewards=[3.0], states=[ENDED]))
        learner.wait_until(lambda: served.rows() == 2)
        assert sorted(column(learner, "group_reward")) == [2.0, 3.0]
        assert len(set(column(learner, "group"))) == 1
        assert GroupEnd.TERMINATED in column(learner, "group_end")


def test_masks_hold() -> None:
    """A choice that is not allowed is never made, and the masks are recorded."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        begin(served, [player])
        for forbidden in (0, 1) * 8:
            allowed = [choice != forbidden for choice in range(2)]
            (actions,) = player.step(report([0, 1], [0.0, 0.0], allowed=allowed * 2)).actions
            assert list(actions.discrete) == [1 - forbidden] * 2
        player.leave()
        served.left(1)
        learner.wait_until(lambda: served.rows() == 1 + 15 * 2)
        masks = np.concatenate([columns(chunk).get("action_mask", np.zeros((0, 2))) for chunk in learner.chunks])
        assert (masks == [0, 1]).all(axis=1).sum() == 16
