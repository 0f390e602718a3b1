"""Tests the gateway for clients, over gRPC and with a scripted learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from rollcast.auth import Principal, Role, TokenRow, token_hash
from rollcast.enums import SegmentEnd
from rollcast.errors import BadRequest, RingTooSmall, SpecMismatch
from rollcast.server_tls import ServerSecurity
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.v1 import client_pb2, policy_pb2, spec_pb2

from actor_client.clients import gateway
from actor_client.clients.gateway import GatewayLimits
from actor_client.envs.seeds import player_seed
from tests.actor_client.acting import column, columns
from tests.actor_client.clients.harness import Served, serving
from tests.actor_client.scripted import ScriptedLearner
from tests.learner.service.identity.certificates import Folder
from tests.playing import BALL, ENDED, Player, hello, report

ENDING = "secret-of-0123456789"
OTHER = BehaviorSpec("Ball", BALL.observations, ActionSpec(discrete_branches=(3,)))


@contextmanager
def playing(served: Served, count: int = 1) -> Iterator[list[Player]]:
    """Yields clients that have said who they are."""
    with ExitStack() as stack:
        players = [stack.enter_context(served.player()) for _ in range(count)]
        for player in players:
            assert not player.greet().goodbye
        yield players


def begin(served: Served, players: Sequence[Player]) -> None:
    """Lets all clients ask, publishes the first policy, and waits for their actions."""
    coming = [player.soon(client_pb2.PlayRequest(steps=[report()])) for player in players]
    served.publish()
    for each in coming:
        assert each.result(20.0).actions[0].agents == [0]


def test_a_client_plays() -> None:
    """It is told its seed, gets an action for each agent that asks, and its steps reach the learner with its rewards."""
    with ScriptedLearner() as learner, serving(learner) as served:
        with served.player() as player:
            told = player.greet(name="one")
            assert told.environment.seed == player_seed(served.link.run_seed, 0, 0)
            assert not told.actions
            begin(served, [player])
            answer = player.step(report([0, 7], [1.0, 5.0], rewards=[0.5, 9.0]))
            assert [(each.behavior, list(each.agents), len(each.discrete)) for each in answer.actions] == [
                ("Ball", [0, 7], 2)
            ]
            assert not answer.HasField("environment"), "nothing of it is new"
            answer = player.step(report([0, 0, 7], [2.0, 3.0, 6.0], rewards=[0.25, 8.0, 1.0], states=[ENDED, 0, 0]))
            assert list(answer.actions[0].agents) == [0, 7]
            assert not player.step(report([7], [7.0], states=[ENDED])).actions
        served.left(1)
        served.learner.wait_until(lambda: served.rows() == 4)
    rewards = sorted(column(learner, "reward"))
    assert rewards == [0.0, 0.25, 0.5, 1.0]
    ends = sorted(column(learner, "end"))
    assert ends == [SegmentEnd.TERMINATED, SegmentEnd.TERMINATED]


def test_clients_share_a_run_of_the_policy() -> None:
    """Those that wait are answered by one run of it."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served, 3) as players:
        coming = [player.soon(client_pb2.PlayRequest(steps=[report()])) for player in players]
        learner.wait_until(lambda: sum(len(runner.waiting) for runner in list(served.gateway._loop)) == len(players))
        served.publish()
        for each in coming:
            assert each.result(20.0).actions
        counts = served.gateway.agent_counts.batch_agents
        assert (sum(counts.counts), counts.total) == (1, 3)


@pytest.mark.parametrize("how", ["leave", "vanish"])
def test_a_client_that_goes_is_interrupted_where_it_was_seen_last(how: str) -> None:
    """Its action without an outcome is no step, and the steps before it end with its last observation."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served, 2) as (one, other):
        begin(served, [one, other])
        one.step(report(values=[1.0], rewards=[0.5]))
        one.step(report(values=[2.0], rewards=[0.25]))
        getattr(one, how)()
        served.left(1)
        learner.wait_until(lambda: served.rows() == 2)
        assert served.books().produced == 2
        assert other.step(report(values=[4.0], rewards=[1.0])).actions, "the other one is served"
        (chunk,) = [columns(chunk) for chunk in learner.chunks if chunk.rows]
        assert chunk["reward"].tolist() == [0.5, 0.25]
        assert chunk["end"].tolist() == [SegmentEnd.TRUNCATED]
        assert chunk["final_obs/state"].tolist() == [[2.0]]
        assert served.books().discarded == {}


def test_a_seat_is_given_again_with_another_seed() -> None:
    """A client that comes back begins new episodes in a place that is free, and does not repeat the old ones."""
    with ScriptedLearner() as learner, serving(learner) as served:
        seeds = []
        for number in range(1, 3):
            with served.player() as player:
                seeds.append(player.greet().environment.seed)
                if number == 1:
                    begin(served, [player])
                else:
                    assert player.step(report()).actions
            served.left(number)
        run_seed = served.link.run_seed
        assert seeds == [player_seed(run_seed, 0, 0), player_seed(run_seed, 0, 0, life=1)]
        assert len(set(seeds)) == 2


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (client_pb2.PlayRequest(steps=[report()]), "the first message has no hello"),
        (client_pb2.PlayRequest(hello=client_pb2.Hello()), "hello declares 0 behaviors; 1 to 64 are allowed"),
        (client_pb2.PlayRequest(hello=hello(*[BALL] * 65)), "hello declares 65 behaviors"),
        (client_pb2.PlayRequest(hello=hello(BALL, BALL)), "behavior 'Ball' is declared twice in hello"),
        (client_pb2.PlayRequest(hello=hello(name="x" * 129)), "hello.name has 129 characters; at most 128"),
        (client_pb2.PlayRequest(hello=hello(OTHER)), "differs from that of the run: discrete_branches: run [2]"),
        (
            client_pb2.PlayRequest(hello=hello(BehaviorSpec("Cube", BALL.observations, BALL.action))),
            "behavior 'Cube' is not in the run file, which has Ball; rename it",
        ),
        (
            client_pb2.PlayRequest(hello=client_pb2.Hello(behaviors=[spec_pb2.BehaviorSpec(name="Ball")])),
            "behavior 'Ball': 0 observations; 1 to 64 are allowed",
        ),
        (
            client_pb2.PlayRequest(hello=hello(), steps=[report(values=[])]),
            "behavior 'Ball': neither values nor observations are given",
        ),
        (
            client_pb2.PlayRequest(hello=hello(), statistics={str(number): 0.0 for number in range(1025)}),
            "statistics has 1025 names; at most 1024 are allowed",
        ),
    ],
)
def test_what_a_client_does_wrong_concerns_only_itself(request_: client_pb2.PlayRequest, says: str) -> None:
    """It gets one line and no more; the other one goes on."""
    with ScriptedLearner() as learner:
        learner.behaviors = ("Ball",)
        with serving(learner) as served, playing(served) as (other,), served.player() as player:
            begin(served, [other])
            answer = player.send(request_)
            assert says in answer.goodbye
            assert answer.goodbye.isprintable()
            with pytest.raises(StopIteration):
                player.send(request_)
            assert served.gateway.counts.refused == 1
            assert other.step(report(values=[1.0])).actions
            learner.wait_until(lambda: served.gateway.counts.connected["grpc"] == 1)


def test_a_second_hello_and_a_lie_later_end_a_client() -> None:
    """What came before is kept."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served, 2) as (one, other):
        begin(served, [one, other])
        one.step(report(values=[1.0], rewards=[1.0]))
        other.step(report(values=[1.0], rewards=[1.0]))
        assert "hello came twice" in one.greet().goodbye
        assert "agent 0 asks for two actions" in other.step(report(), report()).goodbye
        served.left(2)
        learner.wait_until(lambda: served.rows() == 2)
        assert served.gateway.counts.refused == 2


def test_more_clients_than_seats() -> None:
    """The next one is told so, and comes in when one has left."""
    with ScriptedLearner() as learner, serving(learner, GatewayLimits(max_clients=1)) as served:
        with playing(served), served.player() as late:
            assert "serves at most 1 clients at once (--max-clients)" in late.greet().goodbye
        served.left(1)
        with playing(served):
            assert served.gateway.counts.connected == {"grpc": 1, "websocket": 0, "http": 0}


def test_who_finds_no_place_is_told_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream that is over from the start is closed, whatever its client does not send."""
    monkeypatch.setattr(gateway, "_SPARE", 0)
    limits = GatewayLimits(max_clients=1)
    with (
        ScriptedLearner() as learner,
        serving(learner, limits) as served,
        playing(served),
        served.player() as late,
    ):
        assert "serves at most 1 clients at once" in next(late.stream).goodbye


def test_clients_with_and_without_a_token(tmp_path: Path) -> None:
    """Only a token of the role client opens the door."""
    file = tmp_path / "tokens"
    rows = [TokenRow(Principal(role, role), token_hash(f"{role}-{ENDING}")) for role in (Role.CLIENT, Role.ACTOR)]
    file.write_text("".join(f"{row.line()}\n" for row in rows))
    with ScriptedLearner() as learner, serving(learner, token_file=file) as served:
        for token, says in (
            ("", "this gateway needs a token"),
            ("short", "is unknown, was revoked, or has expired"),
            (f"viewer-{ENDING}", "is unknown, was revoked, or has expired"),
            (f"actor-{ENDING}", "is of the role actor; a client needs one of the role client"),
            (f"client-{ENDING}", ""),
        ):
            with served.player() as player:
                goodbye = player.greet(token=token).goodbye
                assert says in goodbye
                assert token not in goodbye or not token


def test_a_stream_without_a_hello_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who connects and says nothing keeps no place; a client that is slow to report does."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (other,):
        monkeypatch.setattr(gateway, "HELLO_SECONDS", 0.0)
        with served.player() as stranger, pytest.raises(grpc.RpcError) as caught:
            next(stranger.stream)
        assert caught.value.code() is grpc.StatusCode.CANCELLED
        begin(served, [other])
        assert served.gateway.counts.connected["grpc"] == 1


def test_clients_with_tls(tmp_path: Path) -> None:
    """They check the gateway's certificate; those in plain text do not come in."""
    folder = Folder.make(tmp_path, game=Role.CLIENT)
    cert, key = folder.server
    with (
        ScriptedLearner() as learner,
        serving(learner, token_file=tmp_path / "tokens", security=ServerSecurity(cert, key)) as served,
    ):
        with served.player() as stranger, pytest.raises(grpc.RpcError):
            stranger.greet()
        with Player(served.address, folder.client().credentials()) as player:
            assert not player.greet(token=folder.tokens["game"]).goodbye


def test_bytes_that_are_no_message_end_the_stream() -> None:
    """So does a message that is too large; both with a status of gRPC."""
    with ScriptedLearner() as learner, serving(learner, max_message_bytes=4096) as served:
        with grpc.insecure_channel(served.address) as channel:
            play: Any = channel.stream_stream("/rollcast.v1.ClientService/Play")
            for data, code in (
                (b"\xff\xff\xff", grpc.StatusCode.INVALID_ARGUMENT),
                (bytes(5000), grpc.StatusCode.RESOURCE_EXHAUSTED),
                (bytes(1 << 20), grpc.StatusCode.RESOURCE_EXHAUSTED),
            ):
                with pytest.raises(grpc.RpcError) as caught:
                    next(play(iter([data])))
                assert caught.value.code() is code
        assert served.gateway.counts.refused == 2, "gRPC itself refuses the largest"


def test_a_reset_reaches_clients() -> None:
    """The answer has no actions, and the rows of the episodes that it ends are counted as discarded."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        begin(served, [player])
        player.step(report(values=[1.0]))
        served.reset()
        answer = player.step(report(values=[2.0]))
        assert answer.reset
        assert not answer.actions
        assert player.step(report(values=[3.0])).actions
        assert served.books().discarded == {"reset": 2}


def test_environment_parameters_reach_clients() -> None:
    """Constants come when they change; what is drawn comes after each end of an episode."""
    uniform = policy_pb2.UniformSampler(low=1.0, high=2.0)
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        begin(served, [player])
        parameters = {"mass": policy_pb2.Sampler(constant=3.0)}
        learner.assign(policy_pb2.Assignment(id=1, settings_revision=1, environment_parameters=parameters))
        served.follow(1)
        told = player.step(report(values=[1.0])).environment
        assert (told.settings_revision, dict(told.parameters)) == (1, {"mass": 3.0})
        end = report([0, 0], [1.0, 2.0], states=[ENDED, 0])
        assert not player.step(end).HasField("environment")
        parameters["wind"] = policy_pb2.Sampler(uniform=uniform, seed=5)
        learner.assign(policy_pb2.Assignment(id=2, settings_revision=2, environment_parameters=parameters))
        served.follow(2)
        drawn = {player.step(end).environment.parameters["wind"] for _ in range(3)}
        assert len(drawn) == 3
        assert all(1.0 <= value <= 2.0 for value in drawn)
        assert not player.step(report(values=[1.0])).HasField("environment")


def test_a_behavior_that_the_learner_refuses_ends_only_its_clients() -> None:
    """The gateway goes on with the others."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        learner.fail_declare.append(SpecMismatch("obs/state: run float32[2], actor float32[1]"))
        player.greet()
        assert "behavior 'Ball': obs/state: run float32[2], actor float32[1]" in player.step(report()).goodbye
        with playing(served) as (other,):
            begin(served, [other])
            assert other.step(report(values=[1.0])).actions


def test_a_refusal_of_more_agents_or_another_team_ends_nobody_else() -> None:
    """A behavior that the learner has taken goes on as it was taken."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        begin(served, [player])
        learner.fail_declare.append(RingTooSmall("the ring has no room for so many agents"))
        assert player.step(report(agents=[0, 1], values=[1.0, 0.0])).actions
        learner.wait_until(lambda: not learner.fail_declare)
        learner.fail_declare.append(BadRequest("Ball has 64 teams in this session, the maximum"))
        with served.player() as other:
            other.greet()
            assert "Ball has 64 teams in this session" in other.step(report(behavior="Ball?team=1")).goodbye
        for value in (2.0, 3.0):
            assert player.step(report(agents=[0, 1], values=[value, value], rewards=[1.0, 1.0])).actions
        with served.player() as many:
            many.greet()
            teams = [report(behavior=f"Ball?team={team}") for team in range(70)]
            assert "behavior 'Ball' has 64 teams, the maximum" in many.step(*teams).goodbye
        assert player.step(report(agents=[0, 1], values=[4.0, 4.0], rewards=[1.0, 1.0])).actions


def test_statistics_reach_the_learner() -> None:
    """Their means are sent with the next chunk."""
    with ScriptedLearner() as learner, serving(learner) as served, playing(served) as (player,):
        begin(served, [player])
        player.step(report(values=[1.0]), statistics={"Environment/Height": 2.5})
        learner.wait_until(lambda: any("Environment/Height" in chunk.stat_keys for chunk in list(learner.chunks)))


def test_the_end_of_the_run_says_goodbye() -> None:
    """A client that waits is told why; later ones find the door closed."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.greet()
        waiting = player.soon(client_pb2.PlayRequest(steps=[report()]))
        learner.wait_until(lambda: bool(list(served.gateway._loop)))
        served.link.request_stop("it is late")
        assert waiting.result(20.0).goodbye == "the run is over for this gateway: it is late"
