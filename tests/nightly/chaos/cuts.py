"""A TCP proxy between actors and their learner, whose connections can be cut and stalled."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Self

READ_BYTES = 1 << 16


class CutProxy:
    """Forwards connections in a thread of its own within a `with` block; a server that is down refuses them.

    Args:
        port: Of the server, on loopback.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._writers: set[asyncio.StreamWriter] = set()
        self._connections: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self.port = 0

    def __enter__(self) -> Self:
        self._thread.start()
        self._listener = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result()
        self.port = self._listener.sockets[0].getsockname()[1]
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Resets every connection."""
        self._loop.call_soon_threadsafe(self._abort)

    def stall(self) -> None:
        """Forwards nothing, and keeps the connections, until `flow`."""
        self._loop.call_soon_threadsafe(self._flows.clear)

    def flow(self) -> None:
        """Forwards what was held back."""
        self._loop.call_soon_threadsafe(self._flows.set)

    def _abort(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._begin, "127.0.0.1", 0)

    async def _close(self) -> None:
        self._listener.close()
        self._abort()
        self._flows.set()
        while self._connections:
            await asyncio.wait(self._connections)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._connect(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        try:
            pumps = self._pump(reader, far_writer), self._pump(far_reader, writer)
            await asyncio.wait({asyncio.ensure_future(pump) for pump in pumps})
        finally:
            self._writers -= both
            for each in both:
                each.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                await self._flows.wait()
                writer.write(data)
                await writer.drain()
        writer.close()
