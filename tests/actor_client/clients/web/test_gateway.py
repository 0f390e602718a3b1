"""Tests the web door of a real gateway, whose learner is scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, ClientWebSocketResponse, WSMsgType
from google.protobuf import json_format
from rollcast.auth import Principal, Role, TokenRow, make_token, token_hash
from rollcast.v1 import client_pb2

from actor_client.clients import gateway
from actor_client.clients.gateway import GatewayLimits
from tests.actor_client.clients.harness import Served, serving
from tests.actor_client.clients.web.messages import JSON
from tests.actor_client.clients.web.stand_in import SECONDS
from tests.actor_client.scripted import ScriptedLearner
from tests.playing import ENDED, hello, report

NAME = "a-session_of-THIS-test"


def message(**fields: Any) -> dict[str, Any]:
    """Returns a message in JSON."""
    return json_format.MessageToDict(client_pb2.PlayRequest(**fields))


def talking(served: Served, talk: Callable[[ClientSession, ClientWebSocketResponse], Awaitable[None]]) -> None:
    """Talks to a gateway with a socket and by posting."""

    async def run() -> None:
        async with (
            asyncio.timeout(SECONDS),
            ClientSession() as session,
            session.ws_connect(f"ws://{served.web}/v1/play", protocols=(JSON,)) as socket,
        ):
            await talk(session, socket)

    asyncio.run(run())


async def ask(socket: ClientWebSocketResponse, **fields: Any) -> dict[str, Any]:
    """Sends a message through a socket, and returns the answer."""
    await socket.send_json(message(**fields))
    answer: dict[str, Any] = json.loads(await socket.receive_str())
    return answer


async def post(served: Served, session: ClientSession, **fields: Any) -> dict[str, Any]:
    """Posts a message, and returns the answer."""
    async with session.post(f"http://{served.web}/v1/play/{NAME}", json=message(**fields)) as said:
        answer: dict[str, Any] = json.loads(await said.text())
        return answer


def test_clients_of_all_transports_play_together() -> None:
    """A socket, one that posts and one with gRPC get their actions from one policy; their steps reach the learner."""
    with ScriptedLearner() as learner, serving(learner) as served, served.player() as player:
        player.greet()

        async def talk(session: ClientSession, socket: ClientWebSocketResponse) -> None:
            first = await ask(socket, hello=hello())
            assert set(first) == {"environment"}
            assert "seed" in (await post(served, session, hello=hello()))["environment"]
            assert served.gateway.counts.connected == {"grpc": 1, "websocket": 1, "http": 1}
            loop = asyncio.get_running_loop()
            coming = asyncio.gather(
                ask(socket, steps=[report()]),
                post(served, session, steps=[report()]),
                asyncio.wrap_future(player.soon(client_pb2.PlayRequest(steps=[report()]))),
            )
            await loop.run_in_executor(None, served.publish)
            for answer in (await coming)[:2]:
                [actions] = answer["actions"]
                assert (actions["behavior"], actions["agents"], len(actions["discrete"])) == ("Ball", [0], 1)
            ended = report([0, 0], [1.0, 2.0], rewards=[0.5, 0.0], states=[ENDED, 0])
            assert (await ask(socket, steps=[ended]))["actions"][0]["agents"] == [0]
            assert (await post(served, session, steps=[ended]))["actions"][0]["agents"] == [0]

        talking(served, talk)
        player.step(report([0], [1.0], states=[ENDED]))
        served.learner.wait_until(lambda: served.rows() == 3)


def test_a_client_needs_a_token(tmp_path: Path) -> None:
    """Where the gateway asks for a token, a client without one gets a goodbye that says so; one that has it plays."""
    token = make_token()
    file = tmp_path / "tokens"
    file.write_text(TokenRow(Principal("one", Role.CLIENT), token_hash(token)).line() + "\n")
    with ScriptedLearner() as learner, serving(learner, token_file=file) as served:

        async def talk(session: ClientSession, socket: ClientWebSocketResponse) -> None:
            for introduction in (hello(), hello(token="x" * 43)):
                assert "token" in (await post(served, session, hello=introduction))["goodbye"]
            assert "environment" in await ask(socket, hello=hello(token=token))

        talking(served, talk)


def test_a_full_gateway() -> None:
    """A client for which there is no seat is told so; its connection ends, and the others go on."""
    with ScriptedLearner() as learner, serving(learner, GatewayLimits(max_clients=1)) as served:

        async def talk(session: ClientSession, socket: ClientWebSocketResponse) -> None:
            assert "environment" in await ask(socket, hello=hello())
            assert "at most 1 clients" in (await post(served, session, hello=hello()))["goodbye"]
            coming = asyncio.create_task(ask(socket, steps=[report()]))
            await asyncio.get_running_loop().run_in_executor(None, served.publish)
            assert "actions" in await coming

        talking(served, talk)


def test_the_end_of_the_run() -> None:
    """A client that asks when the run has ended gets the goodbye of the run as its answer."""
    with ScriptedLearner() as learner, serving(learner) as served:

        async def talk(session: ClientSession, socket: ClientWebSocketResponse) -> None:
            await ask(socket, hello=hello())
            coming = asyncio.create_task(ask(socket, steps=[report()]))
            await asyncio.sleep(0)
            served.link.request_stop("enough")
            assert "enough" in (await coming)["goodbye"]

        talking(served, talk)


def test_a_socket_without_a_place_is_told_without_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversation that is over from the start is closed, whatever its client does not send."""
    monkeypatch.setattr(gateway, "_SPARE", 0)
    with (
        ScriptedLearner() as learner,
        serving(learner, GatewayLimits(max_clients=1)) as served,
        served.player() as player,
    ):
        player.greet()

        async def talk(_: ClientSession, socket: ClientWebSocketResponse) -> None:
            assert "serves at most 1 clients at once" in (await socket.receive_json())["goodbye"]
            assert (await socket.receive()).type is WSMsgType.CLOSE

        talking(served, talk)
