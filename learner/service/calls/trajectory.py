"""TrajectoryService: one bidirectional stream per session; see trajectory.proto."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from typing import Final

import structlog
from rollcast.errors import BadRequest, MalformedChunk, TooManyCalls, TooSlow
from rollcast.field_counts import has_too_many_chunk_fields
from rollcast.limits import MAX_CHUNK_BYTES, MAX_CHUNK_FIELDS, MAX_REQUEST_BYTES, MESSAGE_HEADROOM_BYTES
from rollcast.throttle import Throttle
from rollcast.v1 import trajectory_pb2

from learner.link.to_front import NOT_TRAINING
from learner.service.calls.form_faults import FormFaults
from learner.service.calls.methods import BOUND, BytesContext, Handlers, parse, stream_stream
from learner.service.calls.session_router import SessionRouter
from learner.service.calls.uploads import UploadStream
from learner.service.identity.access import CALLER
from learner.service.ingest.intake import ChunkIntake, Examined
from learner.service.ingest.session import ActorSession
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.validate import Rejected
from learner.service.metrics.learner import IntakeMetrics

NAME: Final = trajectory_pb2.DESCRIPTOR.services_by_name["TrajectoryService"].full_name

_log = structlog.get_logger(__name__)

OPEN_SECONDS: Final = 10.0
"""Time for the first message of an upload."""
RETRY_SECONDS: Final = 1.0


class TrajectoryService:
    """Receives chunks and answers with acks, credit and holds."""

    def __init__(
        self,
        router: SessionRouter,
        sessions: SessionTable,
        intake: ChunkIntake,
        metrics: IntakeMetrics,
        bounded: Callable[[str], object],
        *,
        max_unopened: int,
        faults: FormFaults,
    ) -> None:
        self._faults = faults
        self._max_unopened = max_unopened
        self._unopened = 0
        self._bounded = bounded
        self._ack_seconds = metrics.ack_seconds
        self._router = router
        self._sessions = sessions
        self._intake = intake
        self._rejected = Throttle()

    def handlers(self) -> Handlers:
        """Returns the handlers of the methods."""
        return {"Upload": stream_stream(self.upload)}

    async def upload(self, requests: AsyncIterator[bytes], context: BytesContext) -> None:
        """Serves one stream: a task reads, and this coroutine writes."""
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
            self._router.detach(stream)

    async def _open(self, requests: AsyncIterator[bytes]) -> UploadStream:
        raw = await self._first(requests)
        if raw is None:
            raise BadRequest("the stream ended before its first message, which must be `open`")
        request = parse(trajectory_pb2.UploadRequest, raw, MAX_REQUEST_BYTES)
        if request.WhichOneof("message") != "open":
            raise BadRequest("the first message of an upload must be `open`")
        self._router.check_admission()
        session = self._sessions.get(request.open.session_id, request.open.epoch, CALLER.get().name)
        self._sessions.touch(session)
        return self._router.attach(session, request.open.epoch)

    async def _first(self, requests: AsyncIterator[bytes]) -> bytes | None:
        """Returns the first message of an upload; None if the upload ended without one."""
        if self._unopened >= self._max_unopened:
            raise TooManyCalls(
                f"{self._unopened} uploads wait for their first message: try again",
                retry_after_seconds=RETRY_SECONDS,
                metadata={BOUND: "unopened"},
            )
        self._unopened += 1
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return await anext(requests, None)
        except TimeoutError:
            raise TooSlow(
                f"no first message within {OPEN_SECONDS:g} s; it must be `open`", metadata={BOUND: "unopened"}
            ) from None
        finally:
            self._unopened -= 1

    async def _read(self, stream: UploadStream, requests: AsyncIterator[bytes]) -> None:
        """Accepts chunks until the actor half-closes or an error occurs, then ends the stream."""
        try:
            async for raw in requests:
                await self._wait(stream.session)
                if stream.is_over:  # its writer may still be held back by a slow connection
                    return
                await self._take(stream, raw)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - handed to the writer, whose interceptor makes a status of it
            stream.end(error, flush=True)
            self._faults.note((stream.session.principal, stream.session.actor_name), error)
        else:
            stream.end(flush=True)

    async def _wait(self, session: ActorSession) -> None:
        """Stops reading while a session has taken too much of the event loop; its connection then holds it back."""
        seconds = session.loop_time.wait_seconds(time.monotonic())
        if seconds > 0:
            self._bounded("loop_time")
            await asyncio.sleep(seconds)

    async def _take(self, stream: UploadStream, raw: bytes) -> None:
        began, used_seconds = time.monotonic(), -time.thread_time()
        session = stream.session
        queued_bytes = None
        try:
            examined = self._examine(stream, raw)
            if examined is not None and examined.rejected is None:
                queued_bytes = examined.chunk.rows * examined.behavior.spec.step_bytes
        finally:
            used_seconds += time.thread_time()
            session.loop_time.charge(used_seconds, queued_bytes, self._router.connected)
        if examined is None:
            stream.settled(None)
            return
        while not examined.has_room:
            # When this coroutine stops reading, HTTP/2 flow control stops the sender; this is the last defence.
            await self._router.room()
            if stream.is_over:
                return
        rejected = self._intake.settle(session, examined)
        if rejected is not None:
            self._log_rejection(stream, rejected)
        stream.settled(rejected)
        self._router.received(examined.account, is_rejected=rejected is not None)
        self._ack_seconds.observe(time.monotonic() - began)

    def _examine(self, stream: UploadStream, raw: bytes) -> Examined | None:
        if has_too_many_chunk_fields(raw):
            raise MalformedChunk(
                f"a chunk of {len(raw)} bytes has more than {MAX_CHUNK_FIELDS} fields",
                metadata={BOUND: "chunk_fields", "max_fields": str(MAX_CHUNK_FIELDS)},
            )
        request = parse(trajectory_pb2.UploadRequest, raw, MAX_CHUNK_BYTES + MESSAGE_HEADROOM_BYTES)
        if request.WhichOneof("message") != "chunk":
            raise BadRequest("after `open`, an upload carries only `chunk` messages")
        self._note(stream, request.chunk)
        return self._intake.examine(stream.session, request.chunk, chunk_bytes(len(raw)))

    def _note(self, stream: UploadStream, chunk: trajectory_pb2.Chunk) -> None:
        """Records that a chunk has arrived."""
        history = self._sessions.history
        if history is not None:
            name = history.chunk(stream.session.session_id, chunk.sequence, chunk.generation)
            history.write("received", chunk=name, epoch=stream.epoch, steps=chunk.rows)

    def _log_rejection(self, stream: UploadStream, rejected: Rejected) -> None:
        if rejected.reason == NOT_TRAINING or not rejected.steps:
            return  # chunks after the end of training are counted and are no error
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
    """Returns the encoded size, in bytes, of the chunk in an UploadRequest; credit in bytes counts this size.

    The request is one byte of tag, the chunk's size as a varint, and the chunk. Asking the message for its size would
    serialize it again.
    """
    for prefix in range(1, 6):
        size = request_bytes - 1 - prefix
        if size >= 0 and max(1, -(-size.bit_length() // 7)) == prefix:
            return size
    return request_bytes
