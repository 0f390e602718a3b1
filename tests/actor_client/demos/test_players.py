"""Tests that a demonstration file holds the steps of a real gateway's agents."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from rollcast.demonstrations.reading import read_demonstration
from rollcast.specs import BehaviorSpec

from actor_client.demos.players import PlayerDemos
from actor_client.exits import ActorError, ExitCode
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.harness import Caller, Served, ball, serving


def begun(stack: ExitStack, demos: PlayerDemos) -> tuple[Served, Caller]:
    """Starts a gateway that records, and a player that has completed the handshake."""
    learner = stack.enter_context(ScriptedLearner())
    served = stack.enter_context(serving(learner, demos=demos))
    player = stack.enter_context(served.player())
    player.begin()
    return served, player


def recorded(path: Path, served: Served, behavior: str = "Ball") -> tuple[list[float], list[float], list[float]]:
    """Returns observations, rewards and next observations of the steps in a file."""
    spec: BehaviorSpec = served.declared(behavior)
    found = read_demonstration(path, spec)
    (seen,) = found.observations
    return seen[found.rows].ravel().tolist(), found.rewards.tolist(), seen[found.next_rows].ravel().tolist()


def test_a_player_with_two_agents(tmp_path: Path) -> None:
    """The recording ends once two episodes of a player's two agents are in the file."""
    path, reasons = tmp_path / "ball.demo", list[str]()
    demos = PlayerDemos(path, episodes=2, on_enough=reasons.append)
    with ExitStack() as stack:
        served, player = begun(stack, demos)
        coming = player.soon(player.report({"Ball": [ball(1, value=10, reward=70), ball(2, value=20, reward=80)]}))
        served.publish()
        coming.result()
        player.step(Ball=[ball(1, value=11, reward=1, group_id=4, group_reward=0.5), ball(2, value=21, reward=2)])
        player.step(
            Ball=[
                ball(1, value=12, reward=3, done=True, max_step_reached=True),
                ball(1, value=30, reward=90),
                ball(2, value=22, reward=4),
            ]
        )
        player.step(Ball=[ball(1, value=31, reward=5, done=True), ball(2, value=23, reward=6, done=True)])
        served.learner.wait_until(lambda: bool(reasons))
        observed, rewards, following = recorded(path, served)
        found = read_demonstration(path, served.declared())
    demos.close()
    assert (observed, rewards, following) == (
        [10, 11, 20, 21, 22],
        [1, 3, 2, 4, 6],
        [11, 12, 21, 22, 23],
    )
    assert found.group_rewards.tolist() == [0.5, 0, 0, 0, 0]
    assert found.truncated.tolist() == [False, True, False, False, False]
    assert found.terminated.tolist() == [False, False, False, False, True]


def test_nan_and_players_that_leave(tmp_path: Path) -> None:
    """Episodes with NaN, and those that a reset of the player interrupts, are left out."""
    path = tmp_path / "ball.demo"
    demos = PlayerDemos(path)
    with ExitStack() as stack:
        served, player = begun(stack, demos)
        coming = player.soon(player.report({"Ball": [ball(1, value=1), ball(2, value=2)]}))
        served.publish()
        coming.result()
        player.step(Ball=[ball(1, value=float("nan"), reward=1), ball(2, value=3, reward=1)])
        player.step(Ball=[ball(1, value=4, done=True), ball(2, value=5, reward=2, done=True), ball(1, value=6)])
        player.step(Ball=[ball(1, value=7, reward=8)])
        served.reset()
        player.step(Ball=[ball(1, value=8, reward=9)])
        served.learner.wait_until(lambda: path.exists() and path.stat().st_size > 100)
    demos.close()
    assert recorded(path, served) == ([2, 3], [1, 2], [3, 5])


def test_each_behavior_has_a_file(tmp_path: Path) -> None:
    """Each further behavior has its own file; the teams of a behavior share one."""
    path = tmp_path / "first.demo"
    demos = PlayerDemos(path)
    with ExitStack() as stack:
        served, player = begun(stack, demos)
        everyone = {"Ball": [ball(1, value=1)], "Ball_1": [ball(1, value=2)], "Goal": [ball(1, value=3)]}
        coming = player.soon(player.report(everyone))
        served.publish()
        served.publish("Goal")
        coming.result()
        ended = {
            name: [ball(1, value=infos[0].observations[0].float_data.data[0] + 10, done=True)]
            for name, infos in everyone.items()
        }
        player.step(**ended)
    demos.close()
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names in (["first-Goal.demo", "first.demo"], ["first-Ball.demo", "first.demo"])
    ball_file = path if names[0] == "first-Goal.demo" else tmp_path / "first-Ball.demo"
    assert sorted(recorded(ball_file, served)[2]) == [11, 12]
    with pytest.raises(ActorError, match=r"first\.demo: the file exists") as caught:
        PlayerDemos(path)
    assert caught.value.exit_code is ExitCode.NOT_WRITTEN
