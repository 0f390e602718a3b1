"""Measures the limit of the wire: chunks through one gRPC stream on the loopback interface.

`python -m tests.tools.bench.limits.upload SECONDS` serves, starts itself again as the sender, and prints one line of JSON.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from typing import Any

import grpc
from rollcast.channels import channel_options, server_options

CHUNK_BYTES = 256 * 1024
IN_FLIGHT = 8
_METHOD = "/rollcast.bench.Upload/Upload"
_ACK = b"."


class _Acks(grpc.GenericRpcHandler):
    """Answers every message with one byte."""

    def service(self, handler_call_details: Any) -> Any:
        """Returns the only method for every call."""
        del handler_call_details
        return grpc.stream_stream_rpc_method_handler(self._upload)

    async def _upload(self, chunks: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        del context
        async for _ in chunks:
            yield _ACK


async def serve_and_measure(seconds: float) -> float:
    """Serves one sender process and returns the bytes per second."""
    server = grpc.aio.server(options=server_options())
    server.add_generic_rpc_handlers((_Acks(),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    sender = await asyncio.create_subprocess_exec(
        sys.executable, "-m", __spec__.name, str(seconds), str(port), stdout=asyncio.subprocess.PIPE
    )
    output, _ = await sender.communicate()
    await server.stop(0)
    return float(output)


async def send(port: int, seconds: float) -> float:
    """Sends chunks for a while, a few at a time unacknowledged, and returns bytes per second."""
    chunk = bytes(CHUNK_BYTES)
    room = asyncio.Semaphore(IN_FLIGHT)
    acked = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}", options=channel_options()) as channel:
        call: Any = channel.stream_stream(_METHOD)()

        async def read() -> None:
            nonlocal acked
            while await call.read() is not grpc.aio.EOF:
                acked += 1
                room.release()

        reader = asyncio.create_task(read())
        begun = time.perf_counter()
        while time.perf_counter() - begun < seconds:
            await room.acquire()
            await call.write(chunk)
        await call.done_writing()
        await reader
        return acked * CHUNK_BYTES / (time.perf_counter() - begun)


def main(seconds: float, port: int | None) -> None:
    """Runs one of the two sides."""
    if port is not None:
        sys.stdout.write(str(asyncio.run(send(port, seconds))))
        return
    sys.stdout.write(json.dumps({"bytes_per_second": asyncio.run(serve_and_measure(seconds))}) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else None)
