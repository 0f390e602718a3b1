"""Tests clients that post their messages, and the rules of all requests."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import ClientResponse, ClientSession, WSServerHandshakeError
from rollcast.v1.client_pb2 import PlayResponse
from structlog.testing import capture_logs

from actor_client.exits import ActorError, ExitCode
from tests.actor_client.clients.web.messages import ENDED, HELLO, JSON, STEP, binary
from tests.actor_client.clients.web.stand_in import MAX_MESSAGE_BYTES, serving

NAME = "a-session_of-THIS-test"
FIRST = {**HELLO, **STEP}
PROTOBUF = {"Content-Type": "application/x-protobuf"}


async def post(
    session: ClientSession, address: str, message: Any, name: str = NAME, **headers: str
) -> tuple[int, dict[str, Any]]:
    """Posts a message in JSON; returns the status and the answer."""
    async with session.post(f"http://{address}/v1/play/{name}", json=message, headers=headers) as answer:
        return answer.status, json.loads(await answer.text())


async def refused(answer: ClientResponse, status: int, fault: str) -> None:
    """Checks that an answer is one line of JSON, for a status."""
    content = json.loads(await answer.text())
    assert (answer.status, list(content)) == (status, ["goodbye"])
    assert fault in content["goodbye"]
    assert content["goodbye"].isprintable()


def test_a_client_that_posts() -> None:
    """A session goes from its first message to its end by DELETE; then its name is unknown."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            status, first = await post(session, address, FIRST)
            assert (status, first["environment"]) == (200, {"seed": 7})
            status, second = await post(session, address, ENDED)
            assert (status, second["actions"][0]["agents"]) == (200, [0])
            for _ in range(2):
                async with session.delete(f"http://{address}/v1/play/{NAME}") as answer:
                    assert (answer.status, await answer.read()) == (204, b"")
            assert gateway.lefts == ["it said so"]
            status, last = await post(session, address, STEP)
            assert status == 404
            assert "begin with hello" in last["goodbye"]
            [conversation] = gateway.conversations
            assert (conversation.transport, conversation.peer) == ("http", "127.0.0.1")

    asyncio.run(talk())


def test_a_client_that_posts_bytes() -> None:
    """Serialized messages are answered in the same form, refusals included."""

    async def talk() -> None:
        async with serving() as (_, address), ClientSession() as session:
            url = f"http://{address}/v1/play/{NAME}"
            async with session.post(url, data=binary(STEP), headers=PROTOBUF) as answer:
                assert (answer.status, answer.content_type) == (404, "application/x-protobuf")
                assert "begin with hello" in PlayResponse.FromString(await answer.read()).goodbye
            async with session.post(url, data=binary(FIRST), headers=PROTOBUF) as answer:
                assert list(PlayResponse.FromString(await answer.read()).actions[0].agents) == [0]

    asyncio.run(talk())


def test_one_message_at_a_time() -> None:
    """A second message before the answer, and another client that drew the same name, are refused; the first goes on."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            await post(session, address, FIRST)
            assert (await post(session, address, FIRST))[0] == 409
            gateway.held = asyncio.get_running_loop().create_future()
            gateway.asked.clear()
            waiting = asyncio.create_task(post(session, address, STEP))
            await gateway.asked.wait()
            for message in (STEP, FIRST, ["no message"]):
                status, answer = await post(session, address, message)
                assert (status, "one at a time" in answer["goodbye"]) == (409, True)
            gateway.held.set_result(PlayResponse(reset=True))
            assert await waiting == (200, {"reset": True})
            assert gateway.lefts == []

    asyncio.run(talk())


def test_a_session_ends_while_it_waits() -> None:
    """DELETE ends a message that waits, with the goodbye."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            gateway.held = asyncio.get_running_loop().create_future()
            waiting = asyncio.create_task(post(session, address, FIRST))
            await gateway.asked.wait()
            async with session.delete(f"http://{address}/v1/play/{NAME}"):
                pass
            assert await waiting == (200, {"goodbye": "it said so"})

    asyncio.run(talk())


def test_a_client_that_hangs_up() -> None:
    """A client that hangs up while it waits for its answer is gone, and so is its session."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            gateway.held = asyncio.get_running_loop().create_future()
            waiting = asyncio.create_task(post(session, address, FIRST))
            await gateway.asked.wait()
            waiting.cancel()
            await gateway.has_left.wait()
            assert gateway.lefts == ["its connection ended"]
            assert (await post(session, address, STEP))[0] == 404

    asyncio.run(talk())


def test_a_client_that_posts_no_more() -> None:
    """A session without messages ends after a while."""

    async def talk() -> None:
        async with serving(idle_seconds=1.0) as (gateway, address), ClientSession() as session:
            await post(session, address, FIRST)
            await gateway.has_left.wait()
            assert gateway.lefts == ["it sent nothing for 1 s"]
            assert (await post(session, address, STEP))[0] == 404

    asyncio.run(talk())


def test_the_end_of_the_gateway() -> None:
    """A client that posts gets the goodbye as the answer to its next message."""

    async def talk() -> None:
        async with ClientSession() as session:
            async with serving() as (gateway, address):
                await post(session, address, FIRST)
                gateway.end("the run is over")
                last = asyncio.create_task(post(session, address, STEP))
            assert await last == (200, {"goodbye": "the run is over"})

    asyncio.run(talk())


def test_an_end_amid_an_answer() -> None:
    """A client whose answer is on its way when the gateway ends gets the answer, and the goodbye for its next message."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            gateway.held = asyncio.get_running_loop().create_future()
            waiting = asyncio.create_task(post(session, address, FIRST))
            await gateway.asked.wait()
            gateway.held.set_result(PlayResponse(reset=True))
            gateway.end("the run is over")
            assert await waiting == (200, {"reset": True})
            assert await post(session, address, STEP) == (200, {"goodbye": "the run is over"})

    asyncio.run(talk())


@pytest.mark.parametrize(
    ("name", "options", "status", "fault"),
    [
        ("short", {"json": FIRST}, 400, "16 to 64 letters"),
        ("a" * 65, {"json": FIRST}, 400, "16 to 64 letters"),
        ("a-name-with-a-dot.in-it", {"json": FIRST}, 400, "16 to 64 letters"),
        (NAME, {"data": json.dumps(FIRST)}, 415, "application/json or application/x-protobuf"),
        (NAME, {"data": "{", "headers": {"Content-Type": "application/json"}}, 400, "not a PlayRequest"),
        (NAME, {"json": " " * MAX_MESSAGE_BYTES}, 413, f"at most {MAX_MESSAGE_BYTES} bytes"),
        (NAME, {"json": FIRST, "chunked": True}, 411, "Content-Length"),
        (NAME, {"json": FIRST, "headers": {"Expect": "a miracle"}}, 417, "100-continue"),
        (f"{NAME}/more", {"json": FIRST}, 404, "/v1/play/SESSION"),
        ("", {"json": FIRST}, 404, "/v1/play/SESSION"),
    ],
)
def test_a_request_that_is_refused(name: str, options: dict[str, Any], status: int, fault: str) -> None:
    """A wrong name, type or size is refused with one line, and begins no conversation."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            async with session.post(f"http://{address}/v1/play/{name}", **options) as answer:
                await refused(answer, status, fault)
            assert gateway.conversations == []

    asyncio.run(talk())


def test_a_body_that_does_not_come() -> None:
    """A client that sends its message too slowly gets no place to do so."""

    async def talk() -> None:
        async with serving(request_seconds=1.0) as (gateway, address):
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /v1/play/{NAME} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n"
            writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
            assert (await reader.readline()).split(b" ")[1] == b"408"
            assert await reader.read()  # to the end: the connection is closed
            writer.close()
            assert gateway.conversations == []

    asyncio.run(talk())


def test_a_method_that_does_not_exist() -> None:
    """Another method is refused with the ones that there are."""

    async def talk() -> None:
        async with (
            serving() as (_, address),
            ClientSession() as session,
            session.put(f"http://{address}/v1/play/{NAME}", json=FIRST) as answer,
        ):
            await refused(answer, 405, "Method Not Allowed")
            assert answer.headers["Allow"] == "DELETE,POST"

    asyncio.run(talk())


@pytest.mark.parametrize(
    "origin",
    ["https://evil.example", "null", "", "http://127.0.0.1:1", "https://ADDRESS", "http://ADDRESS.evil.example"],
)
def test_pages_of_other_origins(origin: str) -> None:
    """A page of another origin can neither play, nor post, nor read; no header tells its browser otherwise."""

    async def talk() -> None:
        allowed = ("https://friend.example",)
        async with serving(origins=allowed) as (gateway, address), ClientSession() as session:
            headers = {"Origin": origin.replace("ADDRESS", address)}
            with pytest.raises(WSServerHandshakeError) as caught:
                await session.ws_connect(f"ws://{address}/v1/play", protocols=(JSON,), headers=headers)
            assert caught.value.status == 403
            for method, path in (("POST", f"/v1/play/{NAME}"), ("OPTIONS", f"/v1/play/{NAME}"), ("GET", "/")):
                async with session.request(method, f"http://{address}{path}", json=FIRST, headers=headers) as answer:
                    await refused(answer, 403, "--allow-origin")
                    assert not [name for name in answer.headers if name.startswith("Access-Control")]
            assert gateway.conversations == []
            assert gateway.counts.refused == 4

    with capture_logs() as lines:
        asyncio.run(talk())
    [line] = lines  # of four: strangers must not fill the log
    assert (line["event"], line["peer"]) == ("client_refused", "127.0.0.1")
    assert "--allow-origin" in line["reason"]


def test_two_origins_are_none() -> None:
    """A request with two origins is of no browser, and refused."""

    async def talk() -> None:
        async with serving(origins=("https://a.example",)) as (_, address), ClientSession() as session:
            headers = [("Origin", "https://a.example"), ("Origin", "https://a.example")]
            async with session.get(f"http://{address}/", headers=headers) as answer:
                await refused(answer, 403, "--allow-origin")

    asyncio.run(talk())


def test_a_page_of_an_allowed_origin() -> None:
    """The browser of a page that the user allowed gets leave to post, after it asks; its page may read the answer."""

    async def talk() -> None:
        origin = "https://Friend.example:8443"
        async with serving(origins=("https://friend.example:8443",)) as (_, address), ClientSession() as session:
            url = f"http://{address}/v1/play/{NAME}"
            asks = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
            async with session.options(url, headers={"Origin": origin, **asks}) as answer:
                assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (204, origin)
                assert answer.headers["Access-Control-Allow-Methods"] == "POST, DELETE"
                assert answer.headers["Access-Control-Allow-Headers"] == "Content-Type"
                assert answer.headers["Vary"] == "Origin"
            async with session.post(url, json=FIRST, headers={"Origin": origin}) as answer:
                assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, origin)
            async with session.post(url, json=FIRST, headers={"Origin": origin}) as answer:
                await refused(answer, 409, "another name")  # and its page may read why
                assert answer.headers["Access-Control-Allow-Origin"] == origin
            async with session.ws_connect(
                f"ws://{address}/v1/play", protocols=(JSON,), headers={"Origin": origin}
            ) as socket:
                await socket.send_json(FIRST)
                assert "actions" in json.loads(await socket.receive_str())

    asyncio.run(talk())


def test_the_own_page() -> None:
    """The gateway's own page plays: it is served with headers that let it do nothing else, and its origin is the gateway's."""

    async def talk() -> None:
        async with serving() as (_, address), ClientSession() as session:
            async with session.get(f"http://{address}/") as answer:
                assert (answer.status, answer.content_type) == (200, "text/html")
                assert 'src="cartpole.js"' in await answer.text()
                assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
                assert answer.headers["X-Content-Type-Options"] == "nosniff"
            async with session.get(f"http://{address}/cartpole.js") as answer:
                assert (answer.status, answer.content_type) == (200, "text/javascript")
            status, answer_ = await post(session, address, FIRST, Origin=f"http://{address}")
            assert (status, "actions" in answer_) == (200, True)

    asyncio.run(talk())


def test_another_host_name() -> None:
    """A page whose name was pointed at this machine (DNS rebinding) reaches nothing."""

    async def talk() -> None:
        async with serving() as (gateway, address), ClientSession() as session:
            for host, status in (("evil.example", 403), ("localhost:1", 200)):
                headers = {"Host": host, "Origin": f"http://{host}"}
                async with session.post(f"http://{address}/v1/play/{NAME}", json=FIRST, headers=headers) as answer:
                    assert answer.status == status
                if status == 403:
                    assert gateway.conversations == []

    asyncio.run(talk())


def test_a_port_in_use() -> None:
    """A port that is taken is an error that names the flag."""

    async def talk() -> None:
        async with serving() as (_, address):
            with pytest.raises(ActorError, match=f"cannot listen on {address}.*--web") as caught:
                async with serving(address=address):
                    pass
            assert caught.value.exit_code is ExitCode.PORT_IN_USE

    asyncio.run(talk())
