"""Tests the gateway with several players."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, STEP
from rollcast.v1 import policy_pb2

from actor_client.envs.seeds import player_seed
from actor_client.unity.conversation import Phase
from actor_client.unity.gateway import LOST
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.agents import agent, floats
from tests.actor_client.unity.harness import ball, hello, id_of, serving
from tests.actor_client.unity.test_gateway import PAUSED, is_held, playing


def test_all_who_wait_are_answered_by_one_run_of_the_policy() -> None:
    """Waiting agents of three players in two teams are answered in one batch."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 3))
        players = [stack.enter_context(served.player(worker)) for worker in range(3)]
        for player in players:
            player.begin()
        coming = [
            players[0].soon(players[0].report({"Ball": [ball(0), ball(1)]})),
            players[1].soon(players[1].report({"Ball": [ball(0)], "Ball_1": [ball(5)]})),
            players[2].soon(players[2].report({"Ball_1": [ball(0), ball(1), ball(2)]})),
        ]
        for worker, each in enumerate(coming):
            assert is_held(served, each, worker)
        learner.wait_until(lambda: len(learner.declared) >= 2)
        served.publish()
        answers = [each.result().unity_input.rl_input.agent_actions for each in coming]
        counted = [{name: len(listed.value) for name, listed in answer.items()} for answer in answers]
        assert counted == [{id_of("Ball"): 2}, {id_of("Ball"): 1, id_of("Ball_1"): 1}, {id_of("Ball_1"): 3}]
        agents = served.gateway.counts.batch_agents
        assert agents.total == 7
        assert sum(agents.counts) <= 2  # one, unless the teams' declarations were answered apart


def test_a_late_behavior_holds_its_own_player_alone() -> None:
    """A behavior without a policy delays only its own player."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 2))
        first, second = playing(stack, served, 0), playing(stack, served, 1)
        coming = first.soon(first.report({"Ball": [ball(0)], "Late": [ball(7)]}))
        assert is_held(served, coming)
        for _ in range(5):
            second.step(Ball=[ball(0)])
        assert not coming.done()
        served.publish("Late")
        answered = coming.result().unity_input.rl_input.agent_actions
        assert set(answered) == {id_of("Ball"), id_of("Late")}


def test_only_the_failed_players_rows_are_given_up() -> None:
    """Only the failed player's open segment is discarded."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 2))
        failing, sound = playing(stack, served, 0), playing(stack, served, 1)
        for player in (failing, sound):
            player.step(Ball=[ball(0)])
            player.step(Ball=[ball(0)])
        served.conversations[0].forget()
        served.gateway.player_lost(0, "ended with exit code 7")
        sound.step(Ball=[ball(0, done=True)])
        learner.wait_until(lambda: served.rows() == 3)
        assert served.books().discarded == {LOST: 2}
        assert served.link.counts.env_discarded_steps == 2
        report = served.link.counts.environment_report()
        assert (report.failures, report.error) == (1, "player 0 ended with exit code 7")
        assert served.conversations[0].phase is Phase.WAITING


def test_a_player_that_fails_while_it_is_held_is_forgotten() -> None:
    """A held player that fails is forgotten, and its successor starts new."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner))
        player = playing(stack, served)
        learner.hold(PAUSED, active=True)
        learner.wait_until(lambda: bool(served.link.snapshot().held))
        coming = player.soon(player.report({"Ball": [ball(0)]}))
        assert is_held(served, coming)
        served.conversations[0].forget()
        served.gateway.player_lost(0, "ended with exit code 7")
        assert coming.result().header.status == 400
        learner.hold(PAUSED, active=False)
        successor = playing(stack, served)
        assert successor.step(Ball=[ball(0)]).command == STEP
        assert served.books().discarded == {LOST: 1}


def test_a_reset_reaches_each_player_once() -> None:
    """Every player gets a reset once; later players start with the new parameters."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 3))
        players = [playing(stack, served, worker) for worker in range(2)]
        gravity = {"gravity": policy_pb2.Sampler(constant=2.0)}
        learner.assign(
            policy_pb2.Assignment(
                id=1, settings_revision=1, environment_parameters=gravity, reset=policy_pb2.RESET_MODE_NOW
            )
        )
        served.follow(1)
        for player in players:
            assert player.step(Ball=[ball(0)]).command == RESET
            assert player.step(Ball=[ball(0)]).command == STEP
        with served.player(2) as late:
            assert b"gravity" in late.begin().side_channel
            assert late.step(Ball=[ball(0)]).command == STEP


def test_another_build_under_the_same_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A player whose behavior has another spec is refused in one line; the others continue."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 2))
        sound = playing(stack, served, 0)
        other = stack.enter_context(served.player(1))
        other.begin()
        wide = agent(floats([1.0, 2.0]), id=0)
        assert other.send(other.report({"Ball": [wide]})).header.status == 400
        assert sound.step(Ball=[ball(0)]).command == STEP
        assert "differs from that of the first player" in served.conversations[1].fault
    assert capsys.readouterr().out.count("player_refused") == 1


def test_players_have_seeds_of_their_own() -> None:
    """Players' seeds are consecutive from the run's seed, differ between actors, and have 31 bits."""
    assert [player_seed(7, 0, worker) for worker in range(3)] == [7, 8, 9]
    seeds = {player_seed(7, actor, worker) for actor in range(8) for worker in range(8)}
    assert len(seeds) == 64
    assert all(0 <= player_seed(2**63 - 1, actor, 5) < 2**31 for actor in range(8))


def test_greetings_carry_seed_and_areas() -> None:
    """Each player gets its seed and its number of areas."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner, 2, num_areas=4))
        told = [
            stack.enter_context(served.player(worker)).send(hello()).unity_input.rl_initialization_input
            for worker in range(2)
        ]
        assert [each.seed for each in told] == [7, 8]
        assert [each.num_areas for each in told] == [4, 4]
