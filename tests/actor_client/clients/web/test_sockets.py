"""Tests clients that speak WebSocket."""

from __future__ import annotations

import asyncio
import json
import ssl
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession, ClientWebSocketResponse, WSMsgType, WSServerHandshakeError
from rollcast.server_tls import ServerSecurity
from rollcast.v1.client_pb2 import AgentState, PlayRequest, PlayResponse

from tests.actor_client.clients.web.messages import ENDED, HELLO, JSON, STEP, binary
from tests.actor_client.clients.web.stand_in import MAX_MESSAGE_BYTES, StandIn, serving
from tests.learner.service.identity.certificates import Folder

BINARY = "rollcast.v1.binary"


async def ask(socket: ClientWebSocketResponse, message: dict[str, Any]) -> dict[str, Any]:
    """Sends a message in JSON, and returns the answer."""
    await socket.send_json(message)
    answer: dict[str, Any] = json.loads(await socket.receive_str())
    return answer


def test_a_client_that_speaks_json() -> None:
    """The first answer has the environment; each has the actions of the agents that asked; leaving ends the conversation."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            async with session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,)) as socket:
                assert socket.protocol == JSON
                first = await ask(socket, {**HELLO, **STEP})
                assert first["environment"] == {"seed": 7}
                second = await ask(socket, ENDED)
            [actions] = second["actions"]
            assert (actions["behavior"], actions["agents"]) == ("CartPole", [0])
            assert set(actions["discrete"]) <= {0, 1}
            await gateway.has_left.wait()
            assert gateway.lefts == ["its connection ended"]
            [conversation] = gateway.conversations
            assert (conversation.transport, conversation.peer) == ("websocket", "127.0.0.1")

    asyncio.run(talk())


def test_a_client_that_speaks_bytes() -> None:
    """The binary subprotocol carries the serialized messages."""

    async def talk() -> None:
        async with (
            serving() as (_, address),
            ClientSession() as session,
            session.ws_connect(f"ws://{address}/v1/play", protocols=("other", BINARY, JSON)) as socket,
        ):
            assert socket.protocol == BINARY
            await socket.send_bytes(binary({**HELLO, **STEP}))
            answer = PlayResponse.FromString(await socket.receive_bytes())
        assert answer.environment.seed == 7
        assert list(answer.actions[0].agents) == [0]

    asyncio.run(talk())


@pytest.mark.parametrize("protocols", [(), ("rollcast.v2.json",), ("", ",")])
def test_a_subprotocol_that_nobody_knows(protocols: tuple[str, ...]) -> None:
    """A client that names no known subprotocol is refused before the WebSocket opens, and told which there are."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            with pytest.raises(WSServerHandshakeError) as caught:
                await session.ws_connect(f"ws://{address}/v1/play", protocols=protocols)
            assert caught.value.status == 400
            async with session.get(
                f"http://{address}/v1/play", headers={"Sec-WebSocket-Protocol": ",".join(protocols)}
            ) as said:
                assert said.status == 400
                assert "rollcast.v1.json and rollcast.v1.binary" in (await said.json())["goodbye"]
            async with session.get(f"http://{address}/v1/play", headers={"Sec-WebSocket-Protocol": JSON}) as said:
                assert said.status == 426
            assert gateway.conversations == []

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("protocol", "content", "fault"),
    [
        (JSON, "", "not a PlayRequest in JSON"),
        (JSON, '["steps"]', "not a PlayRequest in JSON"),
        (JSON, "null", "not a PlayRequest in JSON"),
        (JSON, "1" * 5000, "not a PlayRequest in JSON"),
        (JSON, '{"step": []}', 'no field named "step"'),
        (JSON, '{"steps": [{"agents": ["x"]}]}', "not a PlayRequest in JSON"),
        (JSON, '{"steps": [{"agents": [4294967296]}]}', "Value out of range"),
        (JSON, '{"steps": [{"agents": [0.5]}]}', "0.5 is no whole number"),
        (JSON, '{"steps": [{"agents": [null]}]}', "not a PlayRequest in JSON"),
        (JSON, '{"steps": [{"allowed": ["yes"]}]}', "not a PlayRequest in JSON"),
        (JSON, '{"steps": [{"behavior": "\\ud800"}]}', "not a PlayRequest in JSON"),
        (JSON, '{"steps": [{"behavior": "a", "behavior": "b"}]}', "an object has a name twice"),
        (JSON, '{"steps": [{"values": [[1]]}]}', "not a PlayRequest in JSON"),
        (JSON, '{"statistics": [' + "0," * 16_400 + "0]}", "16384 objects, lists"),
        (JSON, '{"steps": [{"states": ["AGENT_STATE_\\u001b[2J\\n"]}]}', "not a PlayRequest in JSON"),
        (JSON, '{"steps":' + "[" * 16_000, "not a PlayRequest in JSON"),
        (JSON, "[" * 66_000, "objects, lists and values"),
        (JSON, b"\0", "has text frames"),
        (BINARY, "{}", "has binary frames"),
        (BINARY, b"\xff\xff", "2 bytes are not a"),
        (BINARY, b"\x12\0" * 70_000, "more than 65536 fields"),
        (JSON, " " * (MAX_MESSAGE_BYTES + 1), f"{MAX_MESSAGE_BYTES + 1} bytes is over {MAX_MESSAGE_BYTES}"),
        (
            JSON,
            '"' + "ä" * (MAX_MESSAGE_BYTES // 2) + '"',
            f"{MAX_MESSAGE_BYTES + 2} bytes is over {MAX_MESSAGE_BYTES}",
        ),
        (BINARY, b"\0" * (MAX_MESSAGE_BYTES + 1), f"{MAX_MESSAGE_BYTES + 1} bytes is over {MAX_MESSAGE_BYTES}"),
    ],
)
def test_content_that_is_no_message(protocol: str, content: str | bytes, fault: str) -> None:
    """Unusable content is answered with one line, which is the goodbye; the connection is closed."""

    async def talk() -> PlayResponse:
        async with serving() as (gateway, address), ClientSession() as session:
            async with session.ws_connect(f"ws://{address}/v1/play", protocols=(protocol,)) as socket:
                await (socket.send_str(content) if isinstance(content, str) else socket.send_bytes(content))
                said = await socket.receive()
                assert (await socket.receive()).type is WSMsgType.CLOSE
            assert len(gateway.lefts) == 1
        if said.type is WSMsgType.BINARY:
            return PlayResponse.FromString(said.data)
        assert set(json.loads(said.data)) == {"goodbye"}
        return PlayResponse(goodbye=json.loads(said.data)["goodbye"])

    goodbye = asyncio.run(talk()).goodbye
    assert fault in goodbye
    assert goodbye.isprintable()
    assert 0 < len(goodbye) < 400


def test_a_frame_without_bounds() -> None:
    """A frame of far more than the limit is not read: the connection is closed with the status for that."""

    async def talk() -> None:
        async with serving(max_message_bytes=1000) as (gateway, address), ClientSession() as session:
            async with session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,)) as socket:
                await socket.send_str(" " * 5000)
                assert (await socket.receive()).type is WSMsgType.CLOSE
                assert socket.close_code == 1009
            assert gateway.messages == 0

    asyncio.run(talk())


def test_messages_that_do_not_wait() -> None:
    """Messages that came before the answer to an earlier one are answered in turn."""

    async def talk() -> None:
        async with (
            serving() as (_, address),
            ClientSession() as session,
            session.ws_connect(f"ws://{address}/v1/play", protocols=(BINARY,)) as socket,
        ):
            await socket.send_bytes(binary({**HELLO, **STEP}))
            for agent in range(1, 50):
                message = PlayRequest()
                message.steps.add(behavior="CartPole", agents=[agent])
                await socket.send_bytes(message.SerializeToString())
            answers = [PlayResponse.FromString(await socket.receive_bytes()) for _ in range(50)]
        assert [answer.actions[0].agents[0] for answer in answers] == list(range(50))

    asyncio.run(talk())


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_client_that_leaves_while_it_waits(is_cut: bool) -> None:
    """The gateway hears at once that a client is gone that waits for an answer, with a farewell and without."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            gateway.held = asyncio.get_running_loop().create_future()
            socket = await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))
            await socket.send_json({**HELLO, **STEP})
            await gateway.asked.wait()
            if is_cut:
                connection = socket._conn
                assert connection is not None
                assert connection.transport is not None
                connection.transport.abort()
            else:
                await socket.close()
            await gateway.has_left.wait()
            assert gateway.lefts == ["its connection ended"]
            assert gateway.held.cancelled()

    asyncio.run(talk())


def test_a_client_that_says_nothing() -> None:
    """A client that has played and stopped is gone after a while, though its side answers pings."""

    async def talk() -> None:
        async with serving(silent_seconds=1.0) as (gateway, address), ClientSession() as session:
            socket = await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))
            await ask(socket, {**HELLO, **STEP})
            end = await socket.receive()
            assert (end.type, end.extra) == (WSMsgType.CLOSE, "it sent nothing for 1 s")
            assert gateway.lefts == ["it sent nothing for 1 s"]

    asyncio.run(talk())


def test_a_client_that_the_gateway_waits_for_no_more() -> None:
    """The gateway can close the connection of a client that has never said who it is; the client reads why."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            socket = await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))
            [conversation] = gateway.conversations
            conversation.end("no hello came within 10 s")
            conversation.hang_up()
            end = await socket.receive()
            assert (end.type, end.extra) == (WSMsgType.CLOSE, "no hello came within 10 s")

    asyncio.run(talk())


def test_a_client_that_does_not_answer_pings() -> None:
    """A client whose side is gone without a word, so that no pong comes, counts as gone."""

    async def talk() -> None:
        async with serving(ping_seconds=1.0) as (gateway, address), ClientSession() as session:
            socket = await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,), autoping=False)
            await ask(socket, {**HELLO, **STEP})
            assert (await socket.receive()).type is WSMsgType.PING
            await gateway.has_left.wait()
            assert gateway.lefts == ["its connection ended"]

    asyncio.run(talk())


def test_the_end_of_the_gateway() -> None:
    """A client gets the goodbye as its last answer, whether it waits or asks later; one that asks no more is closed."""

    async def talk() -> None:
        async with ClientSession() as session:
            async with serving() as (gateway, address):
                sockets = [await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,)) for _ in range(3)]
                for socket in sockets[:2]:
                    await ask(socket, {**HELLO, **STEP})
                gateway.held = asyncio.get_running_loop().create_future()
                gateway.asked.clear()
                await sockets[0].send_json(STEP)
                await gateway.asked.wait()
                gateway.end("the run is over")
                assert json.loads(await sockets[0].receive_str()) == {"goodbye": "the run is over"}
                closing = asyncio.create_task(ask(sockets[1], STEP))
            assert await closing == {"goodbye": "the run is over"}
            end = await sockets[2].receive()
            assert (end.type, end.data, end.extra) == (WSMsgType.CLOSE, 1001, "the gateway ended")

    asyncio.run(talk())


def test_an_end_amid_an_answer() -> None:
    """A client whose answer is on its way when the gateway ends gets the answer, and the goodbye for its next message."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            socket = await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))
            gateway.held = asyncio.get_running_loop().create_future()
            await socket.send_json({**HELLO, **STEP})
            await gateway.asked.wait()
            gateway.held.set_result(PlayResponse(reset=True))
            gateway.end("the run is over")
            assert json.loads(await socket.receive_str()) == {"reset": True}
            assert await ask(socket, STEP) == {"goodbye": "the run is over"}

    asyncio.run(talk())


def test_tls(tmp_path: Path) -> None:
    """With a certificate the door speaks TLS, and nothing else; a page of its own has an origin with https."""
    folder = Folder.make(tmp_path)
    context = ssl.create_default_context(cafile=str(folder.ca))

    async def talk() -> None:
        async with serving(security=ServerSecurity(*folder.server)) as (_, address), ClientSession() as session:
            headers = {"Origin": f"https://{address}"}
            url = f"wss://{address}/v1/play"
            async with session.ws_connect(url, protocols=(JSON,), ssl=context, headers=headers) as socket:
                assert "actions" in await ask(socket, {**HELLO, **STEP})
            with pytest.raises(ClientError):
                await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))

    asyncio.run(talk())


def test_connections_are_bounded() -> None:
    """While all places are taken by clients that play, a further connection is told so; none of them is ended for it."""

    async def talk() -> None:
        async with serving(max_connections=2) as (_, address), ClientSession() as session:
            sockets = [await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,)) for _ in range(2)]
            with pytest.raises(WSServerHandshakeError) as caught:
                await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,))
            assert caught.value.status == 503
            for socket in sockets:
                assert "actions" in await ask(socket, {**HELLO, **STEP})

    asyncio.run(talk())


def test_an_answer_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A fault of the gateway itself is told without its traceback."""

    class Broken(StandIn):
        def accept(self, transport: str, peer: str) -> Any:
            raise RuntimeError("a secret")

    async def talk() -> None:
        async with serving(Broken()) as (_, address), ClientSession() as session:
            headers = {"Content-Type": "application/json"}
            async with session.post(
                f"http://{address}/v1/play/{'a' * 16}", data=json.dumps({**HELLO, **STEP}), headers=headers
            ) as said:
                text = await said.text()
                assert said.status == 500
            assert "incident" in json.loads(text)["goodbye"]
            assert "secret" not in text

    asyncio.run(talk())


def test_states_of_the_contract() -> None:
    """The messages of these tests are those of the contract."""
    message = PlayRequest.FromString(binary(ENDED))
    assert list(message.steps[0].states) == [AgentState.AGENT_STATE_ENDED, AgentState.AGENT_STATE_UNSPECIFIED]
