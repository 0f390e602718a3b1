"""Tests matches of agents in turns, against a scripted learner."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rollcast.chunks import GameResult
from rollcast.enums import AssignmentRole, SegmentEnd

from tests.actor_client.acting import column
from tests.actor_client.pettingzoo import toys
from tests.actor_client.pettingzoo.harness import acting, segments
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.test_matches import seats

LEARN, OPPONENT = AssignmentRole.LEARN, AssignmentRole.OPPONENT


def test_both_teams_are_declared_before_the_first_action() -> None:
    """The team that moves second is known before the first one moves, which waits for a match of both."""
    with ScriptedLearner() as learner, acting(learner, toys.duel, num_envs=3, teams="o=1") as acts:
        learner.wait_until(lambda: len(learner.declared) >= 2)
        assert {(each.team, each.agents) for each in learner.declared} == {(0, 3), (1, 3)}
        assert not acts.steps()


def test_players_of_a_turn_game_learn_and_oppose() -> None:
    """In turns, x learns and o opposes, then the other way round; every game is told by both, with its result."""
    with ScriptedLearner() as learner:
        learner.awaits = {"Ball"}
        with acting(learner, toys.duel, behaviors="*=Ball", teams="o=1", num_envs=2) as acts:
            pinned = acts.keep(behavior="Ball")
            acts.publish("Ball")
            learner.assign(seats(1, 5, pinned))
            learner.wait_until(lambda: column(learner, "episode/match").count(5) >= 8)
            learner.assign(seats(2, 6, pinned, learner_team=1))
            learner.wait_until(lambda: column(learner, "episode/match").count(6) >= 8)
        told = Counter(
            zip(*(column(learner, f"episode/{name}") for name in ("match", "team", "role", "result")), strict=True)
        )
        assert set(told) == {
            (5, 0, LEARN, GameResult.LOST),
            (5, 1, OPPONENT, GameResult.WON),
            (6, 0, OPPONENT, GameResult.LOST),
            (6, 1, LEARN, GameResult.WON),
        }
        assert {
            (each.team, tuple(each.rewards)) for each in segments(learner) if each.end == SegmentEnd.TERMINATED
        } == {
            (0, (3.0, -10.0)),
            (1, (10.25,)),
        }


def last_choice(board: Any, masks: Any) -> Any:
    """Chooses the last of three: a script for opponents."""
    assert masks.shape == (len(board), 3)
    return [2] * len(board)


def test_a_script_plays_all_opponents() -> None:
    """The learner gets the script's name; the script acts for opponents in place of their policies, and for no others."""
    name = f"{__name__}:last_choice"
    made: list[Any] = []

    def make() -> Any:
        made.append(toys.duel(is_wrapped=False))
        return made[-1]

    with ScriptedLearner() as learner:
        learner.awaits = {"Ball"}
        with acting(learner, make, behaviors="*=Ball", teams="o=1", opponent=name) as acts:
            acts.publish("Ball", logits=[9.0, 0.0, 0.0])
            learner.assign(seats(1, 5, None))
            learner.wait_until(lambda: column(learner, "episode/match").count(5) >= 12)
        assert {request.opponent for request in learner.opened} == {name}
        taken = [each for env in made for each in env.actions]
        assert {choice for who, choice in taken if who == "o"} == {2}
        assert 0 in {choice for who, choice in taken if who == "x"}
