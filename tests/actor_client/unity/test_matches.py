"""Tests matches on the gateway: one team learns, the other plays with pinned policies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from rollcast.chunks import GameResult
from rollcast.enums import AssignmentRole, SegmentEnd
from rollcast.policies import PolicyDescription
from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, STEP, UnityRLInputProto
from rollcast.v1 import policy_pb2
from structlog.testing import capture_logs

from tests.actor_client.acting import column
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.harness import Caller, Served, ball, serving
from tests.actor_client.unity.test_gateway import is_held

LEARN, OPPONENT = policy_pb2.ASSIGNMENT_ROLE_LEARN, policy_pb2.ASSIGNMENT_ROLE_OPPONENT


def seats(number: int, match: int, pinned: PolicyDescription | None, learner_team: int = 0) -> policy_pb2.Assignment:
    """Returns an assignment in which one team learns and the other plays with a pinned policy."""
    parts = []
    for team in (0, 1):
        part = policy_pb2.BehaviorAssignment(behavior="Ball", team=team, role=LEARN, match=match)
        if team != learner_team:
            part.role = OPPONENT
            if pinned is not None:
                part.generation, part.version, part.sha256 = pinned.generation, pinned.version, pinned.sha256
        parts.append(part)
    return policy_pb2.Assignment(id=number, behaviors=parts)


def choice(reply: UnityRLInputProto, team: int) -> list[int]:
    """Returns what the agents of a team were told to do."""
    return [action.discrete_actions[0] for action in reply.agent_actions[f"Ball?team={team}"].value]


class Table:
    """A learner, a gateway, and a player with two teams whose newest policy chooses 0."""

    def __init__(self, learner: ScriptedLearner, served: Served, player: Caller) -> None:
        self.learner = learner
        self.served = served
        self.player = player
        self.coming: Any = None

    def keep(self, version: int, prefers: int) -> PolicyDescription:
        """Keeps a version whose policy prefers a choice."""
        return self.served.keep(version, logits=[0.0, 50.0] if prefers else [50.0, 0.0])

    def play(self, number: int, match: int, pinned: PolicyDescription | None, learner_team: int = 0) -> None:
        """Begins a match, and waits until the gateway has it."""
        self.learner.assign(seats(number, match, pinned, learner_team))
        self.served.follow(number)

    def step(self, reward: float = 0.0, identity: int = 0) -> UnityRLInputProto:
        """Lets both teams ask; team 1 gets the negative reward."""
        return self.player.step(Ball=[ball(identity, reward=reward)], Ball_1=[ball(identity, reward=-reward)])

    def end(self, reward: float = 1.0, *, asks: bool = True, **fields: Any) -> UnityRLInputProto:
        """Ends the episodes of both teams with a last reward; the next ones begin in the same message."""
        team, other = (
            [ball(0, reward=value, done=True, **fields), *([ball(0)] if asks else [])] for value in (reward, -reward)
        )
        return self.player.step(Ball=team, Ball_1=other)

    def records(self, count: int) -> dict[str, list[float]]:
        """Returns the columns of all records so far, of both teams, once there are so many."""
        self.learner.wait_until(lambda: len(column(self.learner, "episode/match")) >= count)
        names = ("match", "role", "team", "result", "opponent_version", "length", "end", "first_version")
        return {name: column(self.learner, f"episode/{name}") for name in names}


@contextmanager
def table(learner: ScriptedLearner, players: int = 1) -> Iterator[Table]:
    """Starts a gateway; its player's agents of two teams ask, and wait for a match."""
    learner.awaits = {"Ball"}
    with serving(learner, players) as served, served.player() as player:
        player.begin()
        found = Table(learner, served, player)
        found.coming = player.soon(player.report({"Ball": [ball(0)], "Ball_1": [ball(0)]}))
        served.publish(logits=[50.0, 0.0])
        yield found


def test_agents_with_self_play_wait_for_a_match() -> None:
    """Without an assignment nobody acts; with one, the opponent plays the pinned policy and the other the newest."""
    with ScriptedLearner() as learner, table(learner) as game:
        learner.wait_until(lambda: bool(learner.subscribers))
        assert is_held(game.served, game.coming)
        game.play(1, 5, game.keep(3, prefers=1))
        reply = game.coming.result().unity_input.rl_input
        assert (reply.command, choice(reply, 0), choice(reply, 1)) == (STEP, [0], [1])


def test_opponents_send_records_and_no_rows() -> None:
    """Both teams report the game; only rows of the learning team are produced, the others are ghost steps."""
    with ScriptedLearner() as learner, table(learner) as game:
        game.play(1, 5, game.keep(3, prefers=1))
        game.coming.result()
        for _ in range(3):
            game.step(0.25)
        game.end(1.0)
        told = game.records(2)
        assert told["match"] == [5, 5]
        assert sorted(zip(told["team"], told["role"], told["result"], told["opponent_version"], strict=True)) == [
            (0, AssignmentRole.LEARN, GameResult.WON, 3),
            (1, AssignmentRole.OPPONENT, GameResult.LOST, 0),
        ]
        assert told["length"] == [4, 4]
        learner.wait_until(lambda: game.served.rows() == 4)
        books = game.served.books()
        assert (books.produced, books.ghost) == (4, 4)
        learner.wait_until(lambda: learner.chunks[-1].ghost_steps == 4)
        assert {chunk.team for chunk in learner.chunks if chunk.rows} == {0}
        assert set(column(learner, "assignment")) == {1}
        opponents = {name for chunk in learner.chunks for name in chunk.opponents}
        assert opponents == {"Ball?team=0", "Ball?team=1"}


def test_a_change_of_roles_resets_after_sending_what_is_open() -> None:
    """Open segments are cut and sent before the reset; then the other team is recorded."""
    with ScriptedLearner() as learner, table(learner) as game:
        pinned = game.keep(3, prefers=1)
        game.play(1, 5, pinned)
        game.coming.result()
        for _ in range(3):
            game.step(0.5)
        game.play(2, 6, pinned, learner_team=1)
        learner.wait_until(lambda: game.served.rows() == 3)
        assert column(learner, "end") == [SegmentEnd.CUT]
        assert game.step(0.5).command == RESET
        assert (game.served.books().produced, dict(game.served.books().discarded)) == (3, {})
        reply = game.step()
        assert (choice(reply, 0), choice(reply, 1)) == ([1], [0])
        game.step()
        game.end(1.0)
        told = game.records(2)
        assert sorted(zip(told["match"], told["team"], told["role"], strict=True)) == [(6, 0, 2), (6, 1, 1)]
        learner.wait_until(lambda: game.served.rows() == 5)
        assert {chunk.team for chunk in learner.chunks if chunk.rows} == {0, 1}
        assert sorted(column(learner, "assignment")) == [1, 2]


def test_the_learning_team_sets_the_pace() -> None:
    """Without credit for the learning team, no opponent acts; ghost steps need no credit."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        learner.steps_through = 2
        game = stack.enter_context(table(learner))
        game.play(1, 5, game.keep(3, prefers=1))
        game.coming.result()
        game.step()
        coming = game.player.soon(game.player.report({"Ball": [ball(0)], "Ball_1": [ball(0)]}))
        learner.wait_until(lambda: game.served.books().produced == 2)  # the gateway's loop has taken the report
        assert is_held(game.served, coming)
        assert game.served.books().ghost == 2
        learner.steps_through = 100
        learner.ack()
        coming.result()
        game.player.step(Ball_1=[ball(0)])  # the learning team does not ask: it is not waited for
        assert game.served.books().ghost >= 3


def test_a_policy_with_another_digest_does_not_play() -> None:
    """The opponent waits, the log says why, and another match goes on."""
    with ScriptedLearner() as learner, table(learner) as game:
        good = game.keep(3, prefers=1)
        game.keep(3, prefers=0)
        with capture_logs() as logs:
            game.play(1, 5, good)
            learner.wait_until(lambda: any(line["event"] == "pinned_policy_unavailable" for line in logs))
        assert is_held(game.served, game.coming)
        (line,) = [line for line in logs if line["event"] == "pinned_policy_unavailable"]
        assert "SHA-256 differs" in line["reason"]
        assert line["instead"] == "the opponent waits"


@pytest.mark.parametrize("forget", [False, True])
def test_a_restarted_learner_goes_on_with_matches(forget: bool) -> None:
    """After a restart agents wait for a match; a policy of an earlier generation is not fetched again."""
    with ScriptedLearner() as learner, table(learner) as game:
        pinned = game.keep(3, prefers=1)
        game.play(1, 5, pinned)
        game.coming.result()
        game.step()
        learner.assignment = policy_pb2.Assignment()
        learner.restart(forget=forget)
        learner.wait_until(lambda: game.served.link.books()["Ball"].produced >= 0 and bool(learner.subscribers))
        game.served.publish(version=1, logits=[50.0, 0.0])
        coming = game.player.soon(game.player.report({"Ball": [ball(0)], "Ball_1": [ball(0)]}))
        learner.wait_until(lambda: bool(learner.subscribers))
        game.learner.assign(seats(1, 9, pinned))
        reply = coming.result().unity_input.rl_input
        assert (choice(reply, 0), choice(reply, 1)) == ([0], [1])
        assert len(learner.asked_for) == 1
