"""Tests the report of connections that cannot be accepted."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
from typing import Any

from structlog.testing import capture_logs

from learner.service.run.front import throttle_accept_errors
from tests.learner.service.calls.harness import eventually


def test_running_out_of_files_is_one_line_in_the_log() -> None:
    """Connections that cannot be accepted are logged once, and are accepted as soon as there are files again."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def run() -> list[Any]:
        loop = asyncio.get_running_loop()
        throttle_accept_errors(loop)
        accepted = asyncio.Semaphore(0)

        def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.release()
            writer.close()

        server = await asyncio.start_server(accept, "127.0.0.1", 0)
        clients = [socket.socket() for _ in range(5)]
        next_free = os.dup(0)
        os.close(next_free)
        resource.setrlimit(resource.RLIMIT_NOFILE, (next_free, hard))
        try:
            with capture_logs() as logs:
                for client in clients:
                    client.connect(server.sockets[0].getsockname())
                await eventually(lambda: bool(logs))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        async with asyncio.timeout(300):
            for _ in clients:
                await accepted.acquire()
        server.close()
        for client in clients:
            client.close()
        return logs

    (line,) = asyncio.run(run())
    assert (line["event"], line["log_level"]) == ("connections_not_accepted", "error")


def test_other_errors_of_the_loop_are_reported_as_before(caplog: Any) -> None:
    """An exception of a callback still reaches asyncio's own log."""

    async def run() -> None:
        throttle_accept_errors(asyncio.get_running_loop())
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(0)

    asyncio.run(run())
    assert "ZeroDivisionError" in caplog.text
