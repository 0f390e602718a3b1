"""Tests the gateway with one player: held exchanges, credit, faults, resets and outages."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from rollcast.unity.communicator_objects.unity_message_pb2 import RESET, STEP, UnityMessageProto
from rollcast.v1 import policy_pb2

from actor_client.connection import behavior
from tests.actor_client.scripted import ScriptedLearner
from tests.actor_client.unity.harness import Caller, Served, ball, id_of, serving

PAUSED = 4
BALL = id_of("Ball")


def playing(stack: ExitStack, served: Served, worker: int = 0, agents: int = 1) -> Caller:
    """Returns a player whose first agents were answered by version 0."""
    player = stack.enter_context(served.player(worker))
    player.begin()
    coming = player.soon(player.report({"Ball": [ball(identity) for identity in range(agents)]}))
    if not served.learner.newest:
        served.publish()
    coming.result()
    return player


@contextmanager
def one_playing(agents: int = 1, **settings: Any) -> Iterator[tuple[ScriptedLearner, Served, Caller]]:
    """Returns a learner with these settings, a gateway, and a player whose first agents were answered by version 0."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        vars(learner).update(settings)
        served = stack.enter_context(serving(learner))
        yield learner, served, playing(stack, served, agents=agents)


def is_held(served: Served, coming: Future[UnityMessageProto], worker: int = 0) -> bool:
    """Returns whether the gateway has taken an exchange and not answered it."""
    served.learner.wait_until(lambda: served.conversations[worker].waiting_since is None)
    return not coming.done()


def test_agents_of_a_new_behavior_wait_for_its_first_policy() -> None:
    """The first exchange of a behavior is held until its policy acts; then each agent has one action."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.begin()
        coming = player.soon(player.report({"Ball": [ball(3), ball(4)]}))
        served.declared()
        assert is_held(served, coming)
        served.publish(logits=[0.0, -50.0])
        actions = coming.result().unity_input.rl_input.agent_actions[BALL].value
        assert [list(action.discrete_actions) for action in actions] == [[0], [0]]


def test_an_exchange_without_agents_that_ask_is_answered_at_once() -> None:
    """A message without agents that ask is answered immediately."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.begin()
        answer = player.step(Ball=[ball(0, done=True)])
        assert (answer.command, len(answer.agent_actions)) == (STEP, 0)


def test_a_hold_keeps_the_player_waiting_and_sends_what_is_closed() -> None:
    """A hold delays answers and sends closed segments; its end answers the player."""
    with one_playing() as (learner, served, player):
        learner.hold(PAUSED, active=True)
        learner.wait_until(lambda: bool(served.link.snapshot().held))
        coming = player.soon(player.report({"Ball": [ball(0, reward=1.0, done=True), ball(0)]}))
        assert is_held(served, coming)
        learner.wait_until(lambda: served.rows() == 1)
        learner.hold(PAUSED, active=False)
        assert coming.result().header.status == 200


def test_out_of_credit_the_player_waits_and_nothing_is_dropped() -> None:
    """Produced steps, including those in flight, never exceed the credit."""
    with one_playing(steps_through=3) as (learner, served, player):
        player.step(Ball=[ball(0)])
        player.step(Ball=[ball(0)])
        coming = player.soon(player.report({"Ball": [ball(0)]}))
        assert is_held(served, coming)
        learner.wait_until(lambda: served.books().produced == 3)
        learner.steps_through = 10
        learner.ack()
        assert coming.result().header.status == 200


def test_teams_share_the_credit_of_their_behavior() -> None:
    """Rows in flight of one team count towards the credit of both."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        learner.steps_through = 3
        served = stack.enter_context(serving(learner))
        player = stack.enter_context(served.player())
        player.begin()
        both = {"Ball": [ball(0)], "Ball_1": [ball(1)]}
        coming = player.soon(player.report(both))
        served.publish()
        coming.result()
        coming = player.soon(player.report(both))
        assert is_held(served, coming)
        learner.wait_until(lambda: served.books().produced == 2)
        learner.steps_through = 10
        learner.ack()
        assert coming.result().header.status == 200


def test_more_agents_than_declared_are_declared_again() -> None:
    """More agents than declared are declared again without delaying the player."""
    with one_playing() as (learner, _, player):
        player.step(Ball=[ball(identity) for identity in range(5)])
        learner.wait_until(lambda: [request.agents for request in learner.declared] == [1, 5])


def test_numbers_that_are_not_finite_are_named_and_cost_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """A NaN reward is one line with behavior and agent, and its rows are discarded by reason."""
    with one_playing(agents=2) as (learner, served, player):
        player.step(Ball=[ball(0, reward=math.nan), ball(1)])
        player.step(Ball=[ball(0), ball(1)])
        learner.wait_until(lambda: served.books().discarded == {"not_finite": 2})
        assert served.gateway.counts.faulty_agents == 1
    said = [line for line in capsys.readouterr().out.splitlines() if "player_data" in line]
    assert len(said) == 1
    assert BALL in said[0]


def test_a_reset_from_the_learner_answers_the_next_exchange() -> None:
    """A reset discards partial rows by reason, sends the new parameters, and continues."""
    with one_playing() as (learner, served, player):
        player.step(Ball=[ball(0)])
        harder = {"gravity": policy_pb2.Sampler(constant=2.0)}
        learner.assign(
            policy_pb2.Assignment(
                id=1, settings_revision=1, environment_parameters=harder, reset=policy_pb2.RESET_MODE_NOW
            )
        )
        served.follow(1)
        answer = player.step(Ball=[ball(0)])
        assert answer.command == RESET
        assert b"gravity" in answer.side_channel
        assert not answer.agent_actions
        assert player.step(Ball=[ball(0)]).command == STEP
        assert served.books().discarded == {"reset": 2}


def test_new_parameters_without_a_reset_go_out_with_the_next_answer() -> None:
    """New parameters are sent with the next answer, and later episodes have the new revision."""
    with one_playing() as (learner, served, player):
        gravity = {"gravity": policy_pb2.Sampler(constant=2.0)}
        learner.assign(policy_pb2.Assignment(id=1, settings_revision=7, environment_parameters=gravity))
        served.follow(1)
        answer = player.step(Ball=[ball(0)])
        assert answer.command == STEP
        assert b"gravity" in answer.side_channel
        assert not player.step(Ball=[ball(0, done=True), ball(0)]).side_channel


@pytest.mark.parametrize("forget", [False, True])
def test_a_learner_that_was_started_anew_is_awaited(forget: bool) -> None:
    """After a restart of the learner, old rows are discarded and the player waits for the new policy."""
    with one_playing() as (learner, served, player):
        player.step(Ball=[ball(0)])
        learner.restart(forget=forget)
        learner.wait_until(lambda: len(learner.opened) >= 2 and not served.link.snapshot().policy_version)
        learner.wait_until(lambda: served.link.snapshot().is_uploading)
        coming = player.soon(player.report({"Ball": [ball(0)]}))
        assert is_held(served, coming)
        served.publish()
        assert coming.result().header.status == 200
        player.step(Ball=[ball(0, done=True)])
        learner.wait_until(lambda: served.books().acked == 1)
        assert forget or served.books().discarded == {"generation": 2}


def test_a_policy_that_fails_on_what_players_show_waits_for_a_newer_one() -> None:
    """If a policy fails, the previous version acts or the player waits; the learner gets version and reason."""
    with ScriptedLearner() as learner, ExitStack() as stack:
        learner.report_seconds = 0.05
        served = stack.enter_context(serving(learner))
        player = stack.enter_context(served.player())
        player.begin()
        coming = player.soon(player.report({"Ball": [ball(0)]}))
        served.publish(version=0, is_fragile=True)
        coming.result()
        coming = player.soon(player.report({"Ball": [ball(0, value=3.0)]}))
        learner.wait_until(lambda: any("policy Ball version 0" in each.error for each in learner.session.policies))
        assert not coming.done()
        served.publish(version=1)
        assert coming.result().header.status == 200
        learner.wait_until(lambda: not learner.session.policies[0].error)
        served.publish(version=2, is_fragile=True)
        learner.wait_until(lambda: learner.session.policies[0].version == 2)
        player.step(Ball=[ball(0, value=3.0)])  # by version 1
        learner.wait_until(lambda: "policy Ball version 2" in learner.session.policies[0].error)
        assert learner.session.policies[0].version == 1
        player.step(Ball=[ball(0, done=True)])
        learner.wait_until(lambda: served.books().acked == 3)
        assert served.failure is None


def test_a_policy_that_fails_and_has_no_successor_ends_the_gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failing policy without a successor ends the player and the gateway after a while."""
    monkeypatch.setattr(behavior, "PATIENCE_SECONDS", 0.0)
    with ScriptedLearner() as learner, ExitStack() as stack:
        served = stack.enter_context(serving(learner))
        player = stack.enter_context(served.player())
        player.begin()
        coming = player.soon(player.report({"Ball": [ball(0)]}))
        served.publish(is_fragile=True)
        coming.result()
        answer = player.send(player.report({"Ball": [ball(0, value=3.0)]}))
        assert answer.header.status == 400
        learner.wait_until(lambda: served.failure is not None)
        assert "policy Ball version 0" in str(served.failure)
        assert "no newer version arrived" in str(served.failure)


def test_side_channels_without_end_cost_their_own_records_only() -> None:
    """Very many empty side-channel records are cut, and the player is answered."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.begin()
        assert player.send(player.report({}, side_channel=bytes(3_000_000))).header.status == 200
