"""Tests agents that act as opponents: which policy each plays with, what it remembers, and what is reported."""

from __future__ import annotations

import gc
import sys
import types
import weakref
from typing import Any

import numpy as np
import pytest
from rollcast.chunks import GameResult

from actor_client.policy.actions import MemoryForm
from actor_client.policy.noise import Noise
from actor_client.rollout.agents.interface import AgentRequest, AskingAgents, EndedAgents
from actor_client.rollout.agents.opponents import REPORT_SECONDS, OpponentRound
from actor_client.rollout.agents.scripts import ScriptedOpponent
from actor_client.rollout.assignment import Pinned, Seat
from tests.actor_client.rollout.agents.driver import SPEC, observed
from tests.actor_client.rollout.harness import KeepingLink, RulePolicy

OLD, NEW = Pinned(1, 3, b"old"), Pinned(1, 4, b"new")
EXCHANGE: Any = types.SimpleNamespace(simulator=types.SimpleNamespace(worker=0, reset_due=False, is_running=True))


class Opponents:
    """A round whose policies remember the number of steps, and always choose 0 (old) or 1 (new)."""

    def __init__(self, script: ScriptedOpponent | None = None) -> None:
        self.now = 0.0
        self.link = KeepingLink(SPEC)
        memory = MemoryForm(2, 4)
        self.policies = {
            OLD: RulePolicy(SPEC, 3, rule=lambda seen: np.zeros(len(seen[0])), memory=memory),
            NEW: RulePolicy(SPEC, 4, rule=lambda seen: np.ones(len(seen[0])), memory=memory),
        }
        self.link.opponents = dict(self.policies)
        seat = Seat(5, 1, is_opponent=True, policy=OLD)
        self.round = OpponentRound(SPEC, self.link, seat, script=script, clock=lambda: self.now)
        self.round.follow(RulePolicy(SPEC, 9))
        self.noise = Noise(1, 0, agents=1, continuous_size=0, logits_size=2)

    def ask(self, *identities: int, reward: float = 0.0) -> list[int] | None:
        """Lets agents ask and answers them; returns their choices, or None if they must wait."""
        count = len(identities)
        batch = AskingAgents(
            ids=np.array(identities, np.int64),
            observations=observed(range(count)),
            masks=None,
            rewards=np.full(count, reward, np.float32),
            group_ids=np.zeros(count, np.int64),
            group_rewards=np.zeros(count, np.float32),
            faulty=None,
        )
        request = AgentRequest(EXCHANGE, "Case?team=1", batch, self._ended())
        slots = self.round.observe(0, batch)
        actions = self.round.choose([request], self.noise)
        if actions is None:
            return None
        assert actions.discrete is not None
        self.round.act(slots, actions)
        chosen: list[int] = actions.discrete[:, 0].tolist()
        return chosen

    def end(self, identity: int, reward: float = 0.0, result: int | None = None) -> None:
        """Ends the episode of an agent."""
        results = None if result is None else np.array([result], np.int8)
        self.round.finish(0, self._ended(identity, reward=reward), results)

    def _ended(self, *identities: int, reward: float = 0.0) -> EndedAgents:
        count = len(identities)
        return EndedAgents(
            np.array(identities, np.int64),
            observed(range(count)),
            np.zeros(count, np.bool_),
            np.full(count, reward, np.float32),
            np.zeros(count, np.int64),
            np.zeros(count, np.float32),
            None,
        )

    def told(self, name: str) -> list[float]:
        """Returns a column of all records."""
        self.round.flush()
        return [
            value for chunk in self.link.chunks if chunk.episodes for value in chunk.columns[f"episode/{name}"].tolist()
        ]


def test_a_round_that_is_over_is_freed_at_once() -> None:
    """Nothing keeps a round, whose agents hold policies, until Python next looks for cycles."""
    arena = Opponents()
    assert arena.ask(1, 2) is not None
    freed = weakref.ref(arena.round)
    gc.disable()
    try:
        del arena.round
        assert freed() is None
    finally:
        gc.enable()


def test_each_agent_plays_with_the_policy_of_its_match() -> None:
    """In one message, agents of two matches act with two policies, each with its own memory."""
    game = Opponents()
    assert game.ask(1, 2) == [0, 0]
    game.round.assign(Seat(6, 1, is_opponent=True, policy=NEW))
    game.end(2)
    assert game.ask(2, 1, 3) == [1, 0, 1]
    assert [player.memory.tolist() for player in game.round._players.all() if player.memory is not None] == [
        [2.0, 2.0],
        [1.0, 1.0],
        [1.0, 1.0],
    ]
    game.end(1)
    game.end(3)
    assert (game.told("match"), game.told("last_version")) == ([5, 5, 6], [3, 3, 4])


def test_the_newest_policy_keeps_its_weights_until_the_next_match() -> None:
    """An opponent without a named policy plays all episodes of a match with the policy that was the newest one before."""
    game = Opponents()
    game.round.follow(RulePolicy(SPEC, 20, rule=lambda seen: np.zeros(len(seen[0]))))
    game.round.assign(Seat(6, 1, is_opponent=True))
    assert game.ask(1) == [0]
    game.round.follow(RulePolicy(SPEC, 21, rule=lambda seen: np.ones(len(seen[0]))))
    assert game.ask(1) == [0]
    game.end(1)
    assert game.ask(1, 2) == [0, 0]
    game.round.assign(Seat(7, 1, is_opponent=True))
    game.end(1)
    assert game.ask(1, 2) == [1, 0]
    game.end(1)
    game.end(2)
    assert (game.told("match"), game.told("last_version")) == ([6, 6, 7, 6], [20, 20, 21, 20])


def test_the_newest_policy_of_a_match_is_of_the_present_start_of_the_learner() -> None:
    """After a restart of the learner, episodes begin with its newest policy."""
    game = Opponents()
    game.round.assign(Seat(6, 1, is_opponent=True))
    game.round.follow(RulePolicy(SPEC, 1, generation=2, rule=lambda seen: np.ones(len(seen[0]))))
    assert game.ask(1) == [1]


def test_an_agent_without_an_action_goes_over_to_the_next_match() -> None:
    """An agent whose policy never came takes part in the next match."""
    game = Opponents()
    game.link.opponents = {}
    assert game.ask(1) is None
    game.link.opponents = {NEW: game.policies[NEW]}
    game.round.assign(Seat(6, 1, is_opponent=True, policy=NEW))
    assert game.ask(1) == [1]
    game.end(1)
    assert game.told("match") == [6]


def test_the_environment_says_who_won() -> None:
    """A result of the environment counts, else the sign of the last rewards; an episode without steps is no game."""
    game = Opponents()
    for reward, result in ((-2.0, GameResult.WON), (3.0, None), (0.0, None), (-1.0, GameResult.UNKNOWN)):
        game.ask(1)
        game.end(1, reward, result)
    game.end(7)
    assert game.told("result") == [GameResult.WON, GameResult.WON, GameResult.DRAWN, GameResult.LOST]


def test_ghost_steps_are_told_without_an_end_of_an_episode() -> None:
    """Steps are counted as ghosts and reported every second in a chunk without rows."""
    game = Opponents()
    for _ in range(3):
        game.ask(1)
    assert game.link.books.view().ghost == 2
    game.now = REPORT_SECONDS
    game.ask(1)
    game.round.poll()
    assert all(chunk.rows == chunk.episodes == 0 for chunk in game.link.chunks)
    assert len(game.link.chunks) == 2
    view = game.link.books.view()
    assert (view.produced, view.ghost) == (0, 3)


def test_records_of_an_earlier_start_of_the_learner_are_dropped() -> None:
    """A record that waits when the learner restarts is not sent, because its chunk would be refused."""
    game = Opponents()
    game.ask(1)
    game.end(1)
    game.round.follow(RulePolicy(SPEC, 2, generation=2))
    assert game.told("match") == []
    game.ask(2)
    game.end(2)
    assert game.told("match") == [5]
    assert game.link.chunks[-1].generation == 2


def limited(number: int, policy: Pinned | None, episodes: int, random_steps: int = 0) -> Seat:
    """Returns a seat of a match that reports so many episodes."""
    return Seat(number, 1, is_opponent=True, policy=policy, episodes=episodes, random_steps=random_steps)


def test_the_first_episodes_to_begin_are_reported() -> None:
    """Of a match with two episodes, the first two that begin are reported, whichever end first, and at once at the end."""
    game = Opponents()
    game.round.assign(limited(6, OLD, 2))
    game.ask(1, 2, 3)
    game.end(3)
    game.ask(3)
    game.end(3)
    game.end(2)
    game.ask(2)
    game.end(2)
    assert not any(chunk.episodes for chunk in game.link.chunks)
    game.end(1)
    assert [chunk.columns["episode/agent"].tolist() for chunk in game.link.chunks if chunk.episodes] == [[2, 1]]
    assert game.told("match") == [6, 6]


def test_an_episode_that_was_reset_is_replaced() -> None:
    """Episodes that began before the reset of a match do not count, and a lost one is replaced by another."""
    game = Opponents()
    game.ask(1)
    game.round.assign(limited(6, OLD, 2))
    game.ask(1, 2)
    game.end(1)
    assert game.told("match") == []
    game.round.drop_env(0, "reset")
    game.ask(3, 4)
    for identity in (4, 3):
        game.end(identity)
    assert (game.told("match"), game.told("agent")) == ([6, 6], [4, 3])


def test_an_agent_that_waited_for_its_policy_does_not_count_in_the_next_match() -> None:
    """It takes part, because it has not acted; but the other side of its game may have begun in the match before."""
    game = Opponents()
    game.link.opponents = {NEW: game.policies[NEW]}
    assert game.ask(1) is None
    game.round.assign(limited(6, NEW, 1))
    assert game.ask(1) == [1]
    game.end(1)
    assert game.told("match") == []
    game.ask(1)
    game.end(1)
    assert game.told("match") == [6]


def test_the_first_actions_are_random() -> None:
    """For so many steps of an episode, the policy draws uniformly; then it acts itself."""
    game = Opponents()
    game.round.assign(limited(6, NEW, 4, random_steps=2))
    drawn = []
    for _ in range(4):
        game.ask(1)
        drawn.append(game.policies[NEW].draws)
    game.end(1)
    assert drawn == [1, 2, 2, 2]
    game.ask(1)
    assert game.policies[NEW].draws == 3


def test_matches_with_a_limit_are_in_no_count() -> None:
    """Steps of a tournament or an evaluation are no ghost steps, which decide when self-play draws opponents."""
    game = Opponents()
    for _ in range(3):
        game.ask(1)
    game.round.assign(limited(6, NEW, 2))
    game.round.drop_env(0, "reset")
    for _ in range(50):
        game.ask(1)
    game.end(1)
    game.now = 10 * REPORT_SECONDS
    game.round.poll()
    assert game.told("match") == [6]
    assert game.link.books.view().ghost == 2
    game.round.assign(Seat(7, 1, is_opponent=True, policy=OLD))
    game.round.drop_env(0, "reset")
    for _ in range(4):
        game.ask(1)
    assert game.link.books.view().ghost == 5


def test_only_a_seat_that_says_so_is_deterministic() -> None:
    """The policy under evaluation takes its most likely actions after the random ones; its opponent draws all."""
    game = Opponents()
    seat = Seat(6, 1, is_opponent=True, policy=NEW, episodes=4, random_steps=1, deterministic=True)
    game.round.assign(seat)
    for _ in range(3):
        game.ask(1)
    assert (game.policies[NEW].draws, game.policies[NEW].modes) == (1, 2)
    game.round.assign(limited(7, OLD, 4))
    game.round.drop_env(0, "reset")
    game.ask(1)
    assert game.policies[OLD].modes == 0


def test_a_script_plays_only_seats_without_a_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An actor's script and a named policy play different agents in one message."""
    module = types.ModuleType("scripts_of_a_tournament")
    vars(module)["other"] = lambda seen, _masks: np.ones(len(seen))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    game = Opponents(ScriptedOpponent(f"{module.__name__}:other"))
    assert game.ask(1) == [0]
    game.round.assign(limited(6, None, 4))
    assert game.ask(1, 2) == [0, 1]
    game.round.assign(Seat(7, 1, is_opponent=True, policy=OLD))
    assert game.ask(3, 2, 1) == [0, 1, 0]
