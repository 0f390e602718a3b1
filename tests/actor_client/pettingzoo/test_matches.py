"""Tests matches of agents in turns, against a scripted learner and the learner's own service."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rollcast.chunks import GameResult
from rollcast.enums import AssignmentRole, SegmentEnd
from rollcast.policies import describe_payload
from rollcast.specs import BehaviorSpec

from learner.checkpoints.snapshots import SnapshotFiles
from learner.link.matches import Game, Match, Seat, games_of
from learner.link.policies import PolicyKey, StoredPolicy
from learner.link.to_front import StartMatch
from learner.settings.options import RunOptions
from tests.actor_client.pettingzoo import toys
from tests.actor_client.pettingzoo.harness import acting, column, segments
from tests.actor_client.real_learner import RealLearner
from tests.actor_client.scripted import ScriptedLearner, wait_until
from tests.actor_client.unity.policies import described, flat_policy
from tests.actor_client.unity.test_matches import seats

LEARN, OPPONENT = AssignmentRole.LEARN, AssignmentRole.OPPONENT
OPTIONS = RunOptions.model_validate({"behaviors": {"Ball": {"time_horizon": 8, "self_play": {}}}})


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
            spec = acts.declared("Ball")
            pinned = learner.keep("Ball", 3, flat_policy(spec), described(spec))
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


class Run:
    """A learner's own service, and two teams of the behavior `Ball`."""

    def __init__(self, folder: Path) -> None:
        self.files = SnapshotFiles(folder)
        self.learner = RealLearner("Ball", options=OPTIONS, snapshots=self.files)
        self.spec: BehaviorSpec | None = None

    def version(self, version: int) -> StoredPolicy:
        """Returns a version of the present generation."""
        if self.spec is None:
            wait_until(lambda: self.learner.learner.behaviors.by_index(0) is not None)
            self.spec = self.learner.learner.behavior.spec
        description = replace(described(self.spec), generation=self.learner.generation, version=version)
        payload = flat_policy(self.spec, logits=[float(version), 0.0, 0.0])
        return StoredPolicy(describe_payload(description, payload), payload)

    def play(self, number: int, opponent: PolicyKey, learner_team: int) -> None:
        """Gives the actor a match of both teams; it may declare the second one when x has moved."""
        sessions = self.learner.learner.sessions
        wait_until(lambda: any(session.accounts for session in sessions.live()))
        roles = [(LEARN, None) if team == learner_team else (OPPONENT, opponent) for team in range(2)]
        match = tuple(Seat("Ball", team, role, key) for team, (role, key) in enumerate(roles))
        self.learner.learner.link.to_front.send(StartMatch(Match(number, sessions.live()[0].session_id, match)))

    def games(self, number: int) -> list[Game]:
        """Returns the games of a match that have arrived."""
        found = (game for item in list(self.learner.taken) for game in games_of("Ball", item.chunk))
        return [game for game in found if game.match == number]

    def until(self, condition: Callable[[], bool]) -> None:
        """Waits."""
        wait_until(condition)


@pytest.mark.slow
def test_matches_outlive_a_restart_of_the_learner(tmp_path: Path) -> None:
    """Opponents of an earlier generation play on after a restart; no row of an opponent arrives, and the books balance."""
    run = Run(tmp_path)
    with (
        run.learner as learner,
        acting(cast("ScriptedLearner", learner), toys.duel, behaviors="*=Ball", teams="o=1") as acts,
    ):
        first = run.version(0)
        learner.publish(first)
        key = run.files.write(first)
        run.play(1, key, learner_team=0)
        run.until(lambda: len(run.games(1)) >= 6 and {game.team for game in run.games(1)} == {0, 1})
        state: Any = learner.stop()
        learner.start(state)
        learner.publish(run.version(1))
        run.play(2, key, learner_team=1)
        run.until(lambda: len(run.games(2)) >= 6 and {game.team for game in run.games(2)} == {0, 1})
        assert {(game.team, game.role) for game in run.games(1)} == {(0, LEARN), (1, OPPONENT)}
        assert {(game.team, game.role) for game in run.games(2)} == {(0, OPPONENT), (1, LEARN)}
        of_learner = [game for game in run.games(2) if game.role is LEARN]
        assert {(game.opponent, game.opponent_generation, game.opponent_version) for game in of_learner} == {
            ("Ball?team=0", 1, 0)
        }
        rows = Counter((item.chunk.generation, item.chunk.team) for item in learner.taken if item.chunk.rows)
        assert set(rows) == {(1, 0), (2, 1)}
        view = acts.link.books()["Ball"]
        assert view.balanced
        assert view.ghost > 0
        assert max(item.chunk.ghost_steps for item in learner.taken) > 0
