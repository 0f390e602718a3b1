"""Tests games that act for a scripted learner: what is recorded, ends, resets and failures."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollcast.enums import SegmentEnd
from rollcast.v1 import policy_pb2

from actor_client.connection.session import RunInfo
from actor_client.envs.errors import EnvironmentFailed
from actor_client.exits import ActorError
from actor_client.godot.agent_roles import PolicyRoles
from actor_client.godot.game import TERMINAL, TRUNCATED, Game
from actor_client.rollout.link import ChunkLimits
from tests.actor_client.acting import column, columns
from tests.actor_client.godot.harness import acting
from tests.actor_client.pettingzoo.harness import segments
from tests.actor_client.scripted import ScriptedLearner
from tests.tools import godot_game

TERMINATED, TRUNCATED_END = int(SegmentEnd.TERMINATED), int(SegmentEnd.TRUNCATED)


class Steps(godot_game.CartPole):
    """An agent that sees its steps; its third step, or fourth in odd places, ends the episode."""

    observation_space: dict[str, Any] = {"obs": {"size": [1], "space": "box"}}
    ends = 0

    def obs(self) -> dict[str, Any]:
        """Returns the steps of the episode."""
        return {"obs": [self.steps]}

    def info(self) -> dict[str, Any]:
        """Returns what newer plug-ins add to the last step, of agents in odd places."""
        if self.place % 2 == 0 or self.steps or not self.ends:
            return {}
        return {TERMINAL: {"obs": [99]}, TRUNCATED: True}

    def step(self, action: dict[str, Any]) -> None:
        """Counts a step, rewarded by its number."""
        del action
        self.steps += 1
        self.reward += self.steps
        if self.steps == 3 + self.place % 2:
            self.done, self.steps, self.ends = True, 0, self.ends + 1


class Drives(godot_game.Mixed):
    """An agent that acts in both ways, and sees only numbers."""

    observation_space: dict[str, Any] = {"obs": {"size": [2], "space": "box"}}

    def obs(self) -> dict[str, Any]:
        """Returns place and steps."""
        return {"obs": [self.place, self.steps]}


@pytest.fixture(autouse=True)
def _tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(godot_game.TASKS, "steps", Steps)
    monkeypatch.setitem(godot_game.TASKS, "drives", Drives)


def final_observations(learner: ScriptedLearner, end: int) -> set[float]:
    """Returns the observations after the last steps of segments with such an end."""
    found = set()
    for chunk in list(learner.chunks):
        parts = columns(chunk)
        if "end" in parts:
            found |= set(parts["final_obs/obs"][parts["end"] == end].ravel().tolist())
    return found


def test_each_agent_is_recorded_from_its_first_action_to_its_end() -> None:
    """Rewards belong to the action before; without a last observation, the one before it stands for it."""
    with ScriptedLearner() as learner, acting(learner) as (acts, editor):
        editor.press_play("--task=steps", "--agents=2")
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= 40)
    found = {(each.agent, each.end, tuple(each.rewards)) for each in segments(learner)}
    assert (0, TERMINATED, (1.0, 2.0, 3.0)) in found
    assert (1, TRUNCATED_END, (1.0, 2.0, 3.0, 4.0)) in found
    assert set(column(learner, "episode/return")) == {6.0, 10.0}
    assert final_observations(learner, TERMINATED) == {2.0}
    assert final_observations(learner, TRUNCATED_END) == {99.0}


def test_mixed_actions_reach_the_game() -> None:
    """The game itself checks the form of each action, and its rewards are what it was told to do."""
    with ScriptedLearner() as learner, acting(learner) as (acts, editor):
        editor.press_play("--task=drives", "--agents=2")
        acts.publish(logits=(0.0, 50.0, 0.0, 0.0, 0.0, 50.0))
        learner.wait_until(lambda: acts.steps() >= 20)
    assert all(3 - 1 <= reward <= 3 + 1 for reward in column(learner, "reward"))
    assert set(column(learner, "episode/length")) == {5}


def test_agents_of_two_policies_act_in_one_message() -> None:
    """Each has its own behavior, and the game is answered once both have acted."""
    with ScriptedLearner() as learner, acting(learner, "chaser") as (acts, editor):
        editor.press_play("--task=team", "--agents=3")
        acts.publish("chaser")
        acts.publish("runner")
        learner.wait_until(lambda: acts.steps() >= 30)
        assert set(acts.link.books()) == {"chaser", "runner"}
    found = {(each.behavior_index, each.agent) for each in segments(learner)}
    assert len({index for index, _ in found}) == 2
    assert {agent for _, agent in found} == {0, 1, 2}


def test_the_learner_may_reset_a_game() -> None:
    """Its open rows are discarded, and its agents begin again."""
    with ScriptedLearner() as learner, acting(learner) as (acts, editor):
        editor.press_play("--agents=2")
        acts.publish()
        learner.wait_until(lambda: acts.steps() >= 20)
        learner.assign(policy_pb2.Assignment(id=1, reset=policy_pb2.RESET_MODE_NOW))
        learner.wait_until(lambda: acts.link.books()["shared_policy"].discarded.get("reset", 0) > 0)
        before = acts.steps()
        learner.wait_until(lambda: acts.steps() > before + 20)
    assert acts.failure is None


def test_the_editor_may_stop_and_play_again() -> None:
    """Open rows are discarded, nothing counts as a failure, and the next game continues the run."""
    with ScriptedLearner() as learner, acting(learner) as (acts, editor):
        for steps in (20, 60, 100, 140, 180):
            game = editor.press_play("--agents=2")
            acts.publish()
            learner.wait_until(lambda steps=steps: acts.steps() >= steps)  # type: ignore[misc]
            game.connection.shutdown(2)
        assert acts.link.counts.env_failures == 0
    assert acts.failure is None


STEP = {"type": "step", "obs": [{"obs": [0.0] * 4}], "reward": [1.0], "done": [False]}


def game_alone() -> tuple[Game, Any]:
    """Returns a game that waits for the answer to its first actions, and its port."""
    port = FakePort()
    info = RunInfo("first", 1, 0, 7, (), ChunkLimits(1, 1, 1.0, 1), 10.0)
    game = Game(0, lambda: port, None, PolicyRoles((), (), info), timeout_seconds=60.0, max_failures=3)  # type: ignore[arg-type,return-value]
    assert game.advance() == []
    task = godot_game.CartPole
    described = {"type": "env_info", "n_agents": 1, "observation_space": [task.observation_space]}
    port.message = json.dumps(described | {"action_space": [task.action_space]}).encode()
    assert game.advance() == []
    port.message = json.dumps({"type": "reset", "obs": [{"obs": [0.0] * 4}]}).encode()
    (report,) = game.advance()
    assert report.request.agents == 1
    game.act([{"push": 1}])
    return game, port


class FakePort:
    """A port whose answers are set."""

    number, is_connected, fault = 1, True, ""
    message: bytes | None = None

    def ask(self, body: bytes) -> None:
        """Takes a question."""
        self.message = None
        self.asked = json.loads(body)

    def take(self) -> bytes:
        """Returns the answer."""
        message, self.message = self.message, None
        return message or b""


def test_an_answer_becomes_a_report() -> None:
    """The agent asks again, with its reward; NaN makes its row faulty, and is replaced."""
    game, port = game_alone()
    assert port.asked == {"type": "action", "action": [{"push": 1}]}
    port.message = b'{"type":"step","obs":[{"obs":[nan,1,2,3]}],"reward":[2.5],"done":[false]}'
    (report,) = game.advance()
    asking = report.request.asking
    assert (asking.rewards.tolist(), asking.ids.tolist(), len(report.request.ended.ids)) == ([2.5], [0], 0)
    assert asking.faulty is not None
    assert asking.observations[0].tolist() == [[0.0, 1.0, 2.0, 3.0]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"type": "reset"}, "answered with 'reset' in place of step"),
        ({"obs": []}, "sent obs with 0 entries, and has 1 agents"),
        ({"obs": [{}]}, "sent observations without 'obs'"),
        ({"obs": [7]}, "differs from its space"),
        ({"reward": [[1]]}, "sent rewards that are no numbers"),
        ({"reward": ["x"]}, "sent rewards that are no numbers"),
        ({"reward": [{}]}, "sent rewards that are no numbers"),
        ({"done": ["no"]}, "sent done that is neither true nor false"),
        ({"done": [None]}, "sent done that is neither true nor false"),
        ({"done": True}, "sent done with True"),
        ({"done": [True], "info": [{TERMINAL: {"obs": [1]}}]}, "observation obs has shape"),
    ],
)
def test_an_answer_of_another_form_is_a_failure_of_one_line(change: dict[str, Any], said: str) -> None:
    """The game is started again; the line says what it sent."""
    game, port = game_alone()
    port.message = json.dumps(STEP | change).encode()
    with pytest.raises(EnvironmentFailed, match=said) as failure:
        game.advance()
    assert failure.value.message.startswith("environment 0 failed: the game ")
    assert "\n" not in failure.value.message


def said_by(game: Game) -> str:
    """Returns the error of the next step in words; empty if there is none."""
    try:
        game.advance()
    except ActorError as error:  # EnvironmentFailed is one
        return error.message
    return ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(
    key=st.sampled_from(["obs", "reward", "done", "info", "type"]), value=JSON | st.lists(JSON, min_size=1, max_size=1)
)
def test_any_answer_is_taken_or_a_failure(key: str, value: Any) -> None:
    """Whatever stands in place of a part of the answer, nothing else is raised."""
    game, port = game_alone()
    port.message = json.dumps(STEP | {key: value}).encode()
    with np.errstate(all="ignore"):
        assert said_by(game).isprintable()


@settings(max_examples=200, deadline=None)
@given(key=st.sampled_from(["observation_space", "action_space", "n_agents", "agent_policy_names"]), value=JSON)
def test_any_description_is_taken_or_an_error(key: str, value: Any) -> None:
    """Whatever a game describes, the actor ends or starts it again with one line."""
    port = FakePort()
    info = RunInfo("first", 1, 0, 7, (), ChunkLimits(1, 1, 1.0, 1), 10.0)
    game = Game(0, lambda: port, None, PolicyRoles((), (), info), timeout_seconds=60.0, max_failures=3)  # type: ignore[arg-type,return-value]
    game.advance()
    task = godot_game.CartPole
    described = {"type": "env_info", "n_agents": 1, "observation_space": task.observation_space}
    port.message = json.dumps(described | {"action_space": task.action_space} | {key: value}).encode()
    assert said_by(game).isprintable()
