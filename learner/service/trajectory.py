"""TrajectoryService: one bidirectional stream a session; see trajectory.proto."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Final

import structlog
from rollcast.errors import BadRequest
from rollcast.v1 import trajectory_pb2

from learner.ingest.behaviors import NOT_TRAINING
from learner.ingest.intake import ChunkIntake
from learner.ingest.sessions import SessionTable
from learner.ingest.validate import Rejected
from learner.observe.metrics.learner import IntakeMetrics
from learner.observe.rates import Throttle
from learner.service.hub import Hub
from learner.service.methods import BytesContext, Handlers, parse, stream_stream
from learner.service.uploads import UploadStream

NAME: Final = trajectory_pb2.DESCRIPTOR.services_by_name["TrajectoryService"].full_name

_log = structlog.get_logger(__name__)


class TrajectoryService:
    """Receives chunks and answers with acks, credit and holds."""

    def __init__(self, hub: Hub, sessions: SessionTable, intake: ChunkIntake, metrics: IntakeMetrics) -> None:
        self._ack_seconds = metrics.ack_seconds
        self._hub = hub
        self._sessions = sessions
        self._intake = intake
        self._rejected = Throttle()

    def handlers(self) -> Handlers:
        """Returns the methods."""
        return {"Upload": stream_stream(self.upload)}

    async def upload(self, requests: AsyncIterator[bytes], context: BytesContext) -> None:
        """Serves one stream: a task reads, this coroutine writes."""
        stream = await self._open(requests)
        reader = asyncio.create_task(self._read(stream, requests))
        try:
            await context.write(stream.opened())
            while True:
                for message in stream.responses():
                    await context.write(message)
                if stream.is_over:
                    break
                await stream.changed()
            if stream.error is not None:
                raise stream.error
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
            self._hub.detach(stream)

    async def _open(self, requests: AsyncIterator[bytes]) -> UploadStream:
        raw = await anext(requests, None)
        if raw is None:
            raise BadRequest("the stream ended before its first message; begin with `open`")
        request = parse(trajectory_pb2.UploadRequest, raw)
        if request.WhichOneof("message") != "open":
            raise BadRequest("the first message of an upload must be `open`")
        self._hub.check_admission()
        session = self._sessions.get(request.open.session_id, request.open.epoch)
        self._sessions.touch(session)
        return self._hub.attach(session)

    async def _read(self, stream: UploadStream, requests: AsyncIterator[bytes]) -> None:
        """Takes chunks in until the actor half-closes or something is wrong; ends the stream then."""
        try:
            async for raw in requests:
                if stream.is_over:
                    return
                await self._take(stream, raw)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - handed to the writer, whose interceptor makes a status of it
            stream.end(error, flush=True)
        else:
            stream.end(flush=True)

    async def _take(self, stream: UploadStream, raw: bytes) -> None:
        began = time.monotonic()
        request = parse(trajectory_pb2.UploadRequest, raw)
        if request.WhichOneof("message") != "chunk":
            raise BadRequest("after `open`, an upload carries only `chunk` messages")
        session = stream.session
        examined = self._intake.examine(session, request.chunk, chunk_bytes(len(raw)))
        if examined is None:
            stream.settled(None)
            return
        while not examined.has_room:
            # Not reading on is the last line of defence: HTTP/2 flow control then stops the sender.
            await self._hub.room()
            if stream.is_over:
                return
        rejected = self._intake.settle(session, examined)
        if rejected is not None:
            self._log_rejection(stream, rejected)
        stream.settled(rejected)
        self._ack_seconds.observe(time.monotonic() - began)

    def _log_rejection(self, stream: UploadStream, rejected: Rejected) -> None:
        if rejected.reason == NOT_TRAINING or not rejected.steps:
            return  # what comes behind the end of training is in the books, and nobody's fault
        left_out = self._rejected.admit((stream.session.session_id, rejected.reason))
        if left_out is not None:
            _log.warning(
                "rows_rejected",
                actor=stream.session.actor_name,
                actor_index=stream.session.actor_index,
                reason=rejected.reason,
                steps=rejected.steps,
                detail=rejected.detail,
                left_out=left_out,
            )


def chunk_bytes(request_bytes: int) -> int:
    """Returns the encoded size of the chunk in an UploadRequest of a size, which is what credit in bytes counts.

    The request is one byte of tag, the chunk's size as a varint, and the chunk. Asking the message itself would
    serialize it again.
    """
    for prefix in range(1, 6):
        size = request_bytes - 1 - prefix
        if size >= 0 and max(1, -(-size.bit_length() // 7)) == prefix:
            return size
    return request_bytes
