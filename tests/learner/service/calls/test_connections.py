"""Tests the limits of connections, open files and streams."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from rollcast.auth import Role
from rollcast.errors import WireError
from rollcast.server_tls import ServerSecurity

from learner.service.calls.server import OTHER_DESCRIPTORS, require_descriptors
from learner.service.identity.access import Access
from learner.service.identity.setup import Identity
from learner.shared import platform
from learner.shared.exits import ExitCode, UserError
from learner.shared.settings.service import SPARE_CONNECTIONS, ServiceSettings
from tests.learner.service.calls.harness import SECONDS, Actor, Learner, running
from tests.learner.service.calls.samples import make_options
from tests.learner.service.identity.certificates import Folder


@pytest.fixture
def few_files() -> Iterator[None]:
    """Lowers the soft limit of open files for a test."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 1024), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("few_files")
def test_the_limit_of_open_files_is_raised_for_all_actors() -> None:
    """With a soft limit of 1,024 files, room is made for two connections of each of 1,024 actors."""
    require_descriptors(ServiceSettings(max_sessions=1024))
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= 2 * 1024 + SPARE_CONNECTIONS + OTHER_DESCRIPTORS


def test_more_actors_than_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hard limit that is too low is an error that names the setting, the limit and the number that fits."""
    limits = SimpleNamespace(RLIMIT_NOFILE=7, RLIM_INFINITY=-1, getrlimit=lambda _: (1024, 1024), setrlimit=None)
    monkeypatch.setattr(platform, "_limits", limits)
    with pytest.raises(UserError) as caught:
        require_descriptors(ServiceSettings(max_sessions=1024))
    assert caught.value.exit_code is ExitCode.RUN_FILE
    assert "rollcast.max_sessions 1024 needs 2624 open files, but the system allows 1024" in caught.value.message
    assert "at most 224" in caught.value.message
    require_descriptors(ServiceSettings(max_sessions=224))
    monkeypatch.setattr(platform, "_limits", None)
    require_descriptors(ServiceSettings(max_sessions=10**6))


async def test_connections_beyond_the_limit_are_closed() -> None:
    """Silent connections above the limit are closed at once, and an actor that is connected stays."""
    async with running(make_options(max_sessions=1)) as learner, Actor(learner.server.port) as actor:
        await actor.join()
        most = learner.options.rollcast.connection_limit
        opened = [await asyncio.open_connection("127.0.0.1", learner.server.port) for _ in range(most + 10)]
        ended = [asyncio.create_task(_ends(reader)) for reader, _ in opened]
        while sum(task.done() for task in ended) < 10:
            await asyncio.wait([task for task in ended if not task.done()], return_when=asyncio.FIRST_COMPLETED)
        await actor.renew()
        for _, writer in opened:
            writer.close()
        for task in ended:
            task.cancel()


@pytest.mark.slow
async def test_silent_connections_make_room() -> None:
    """Connections that fill the limit without a word end after five seconds, and a new actor joins."""
    async with running(make_options(max_sessions=1)) as learner, Actor(learner.server.port) as actor:
        most = learner.options.rollcast.connection_limit
        opened = [await asyncio.open_connection("127.0.0.1", learner.server.port) for _ in range(most)]
        ended = asyncio.gather(*(_ends(reader) for reader, _ in opened))
        began = asyncio.get_running_loop().time()
        await actor.join()
        await ended
        assert asyncio.get_running_loop().time() - began > 4.0
        for _, writer in opened:
            writer.close()


async def _refused(learner: Learner, folder: Folder) -> Callable[[], Awaitable[None]]:
    """Opens a connection whose call is refused, and stays."""
    actor = Actor(learner.server.port, security=folder.client())
    with contextlib.suppress(WireError):
        await actor.open()
    return actor.channel.close


async def _silent(learner: Learner, folder: Folder) -> Callable[[], Awaitable[None]]:
    """Opens a connection that makes the handshake and no call, and stays."""
    context = ssl.create_default_context(cafile=str(folder.ca))
    context.set_alpn_protocols(["h2"])
    writers: list[asyncio.StreamWriter] = []
    with contextlib.suppress(OSError):
        _, writer = await asyncio.open_connection(
            "127.0.0.1", learner.server.port, ssl=context, server_hostname="localhost"
        )
        writers.append(writer)

    async def end() -> None:
        for writer in writers:
            writer.close()

    return end


@pytest.mark.slow
@pytest.mark.parametrize("kind", [_refused, _silent])
async def test_connections_without_a_token_make_room(
    tmp_path: Path, kind: Callable[[Learner, Folder], Awaitable[Callable[[], Awaitable[None]]]]
) -> None:
    """Connections that fill the limit and are refused, or say nothing, are ended for an actor; one that was accepted stays."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR)
    access = Access(folder.path / "tokens")
    identity = Identity(access, ServerSecurity(*folder.server))
    async with running(make_options(max_sessions=2), identity=identity) as learner:
        async with Actor(learner.server.port, "first", security=folder.client("lab")) as first:
            await first.join()
            most = learner.options.rollcast.connection_limit
            ends = await asyncio.gather(*(kind(learner, folder) for _ in range(most + 10)))
            async with Actor(learner.server.port, "second", security=folder.client("lab")) as second:
                async with asyncio.timeout(SECONDS):
                    while not second.session_id:
                        with contextlib.suppress(WireError):
                            await second.open()
            await first.renew()
        for end in ends:
            await end()


async def test_a_full_learner_is_no_fault_of_a_certificate(tmp_path: Path) -> None:
    """Who is closed amid the handshake, as by a full learner, learns of no wrong certificate, and tries again."""
    folder = Folder.make(tmp_path, lab=Role.ACTOR)

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(close, "127.0.0.1", 0) as full:
        port = full.sockets[0].getsockname()[1]
        assert await asyncio.to_thread(folder.client("lab").problem, "127.0.0.1", port) == ""


async def _ends(reader: asyncio.StreamReader) -> None:
    try:
        while await reader.read(1024):
            pass
    except ConnectionError:
        pass
