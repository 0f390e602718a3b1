"""Stop 4 of a step's path: the upload stream, which sends chunks and receives acks, credit, holds and drains."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import TypeAlias

import grpc
import structlog
from rollcast import limits
from rollcast.errors import MAX_RETRY_AFTER_SECONDS, Draining, WireError
from rollcast.history import session_name
from rollcast.v1 import trajectory_pb2

from actor_client.connection.endpoint import FIRST_ANSWER_SECONDS, Endpoint, first_of, wire_errors
from actor_client.connection.errors import one_line
from actor_client.connection.gate import ActiveHold
from actor_client.connection.state import ConnectionState
from actor_client.connection.window import OutgoingChunk

UploadCall: TypeAlias = "grpc.aio.StreamStreamCall[trajectory_pb2.UploadRequest, trajectory_pb2.UploadResponse]"

# Seconds in which acks of sent chunks may still arrive after a drain.
LAST_ACKS_SECONDS = 1.0
# The text of grpc.aio in place of the learner's status if a write was in progress at the end of the stream
# (https://github.com/grpc/grpc/issues/36066).
HIDDEN_STATUS = "Internal error from Core"


class Uplink:
    """One upload stream of the session.

    A stream that ends during a write hides its status. The next stream is careful: it sends one chunk at a time until
    the first ack, so that a refusal does not coincide with a write and its status is visible.

    Args:
        state: The state of the connection.
        endpoint: The endpoint of the connection.
    """

    def __init__(self, state: ConnectionState, endpoint: Endpoint) -> None:
        self._state = state
        self._endpoint = endpoint
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Sends and receives until the actor closes and everything is acked.

        Raises:
            WireError: The stream ended in another way; `Draining` if the learner drains.
        """
        call: UploadCall = self._endpoint.trajectories.Upload(metadata=self._endpoint.metadata)
        try:
            with wire_errors("Upload", FIRST_ANSWER_SECONDS):
                async with asyncio.timeout(FIRST_ANSWER_SECONDS):
                    await self._open(call)
                await first_of(self._receive(call), self._send(call))
        except WireError as error:
            if error.code is grpc.StatusCode.INTERNAL and error.message.startswith(HIDDEN_STATUS):
                self._state.careful = True
                raise WireError("the stream ended during a write", code=grpc.StatusCode.UNAVAILABLE) from None
            raise
        finally:
            self._state.uploading = False
            call.cancel()

    async def _open(self, call: UploadCall) -> None:
        """Opens the stream and continues at the number that the learner expects."""
        session = self._state.session
        opening = trajectory_pb2.UploadOpen(session_id=session.session_id, epoch=session.epoch)
        await call.write(trajectory_pb2.UploadRequest(open=opening))
        answer = await call.read()
        if not isinstance(answer, trajectory_pb2.UploadResponse) or answer.WhichOneof("message") != "opened":
            raise WireError("the first answer to the upload is not `opened`", code=grpc.StatusCode.INTERNAL)
        self._note_ack(answer.opened.next_sequence - 1)
        try:
            self._state.counts.chunks_acked += len(self._state.window.rewind(answer.opened.next_sequence))
        except ValueError as error:
            self._state.session.forget()
            raise WireError(str(error), code=grpc.StatusCode.OUT_OF_RANGE) from None
        self._grant(answer.opened.credit)
        for index, gate in self._state.gates.items():
            gate.set_holds(hold for hold in answer.opened.holds if hold.behavior_index == index)
        for hold in answer.opened.holds:
            self._hold(hold)
        self._state.flowing = self._state.uploading = True
        self._state.changed.set()

    async def _send(self, call: UploadCall) -> None:
        """Sends chunks of the window while there is credit; ends the stream when the actor closes."""
        state = self._state
        try:
            while not (state.closing.is_set() and state.window.empty):
                state.sendable.clear()
                while (outgoing := state.window.take()) is not None:
                    self._note_sent(outgoing)
                    outgoing.sent_at = time.monotonic()
                    await call.write(outgoing.request)
                    state.counts.chunks_sent += 1
                    state.counts.sent_bytes += outgoing.size_bytes
                    if state.careful:
                        await self._acked()
                if not (state.closing.is_set() and state.window.empty):
                    await state.sendable.wait()
            await call.done_writing()
        except (grpc.RpcError, asyncio.InvalidStateError):
            await asyncio.sleep(LAST_ACKS_SECONDS)  # the receiver is about to get the reason
            raise
        await asyncio.sleep(LAST_ACKS_SECONDS)  # the learner then ends the stream

    async def _acked(self) -> None:
        """Waits for a sign that the learner received the sent chunks, with a time limit."""
        self._state.sendable.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_ACKS_SECONDS):
                while self._state.careful:
                    await self._state.sendable.wait()
                    self._state.sendable.clear()

    async def _receive(self, call: UploadCall) -> None:
        """Processes the learner's messages."""
        while True:
            answer = await call.read()
            if not isinstance(answer, trajectory_pb2.UploadResponse):
                if self._state.closing.is_set() and self._state.window.empty:
                    return
                raise WireError("the learner ended the upload", code=grpc.StatusCode.UNAVAILABLE)
            kind = answer.WhichOneof("message")
            if kind == "ack":
                self._ack(answer.ack)
            elif kind == "hold":
                self._hold(answer.hold)
            elif kind == "drain":
                await self._drain(call, answer.drain)

    def _ack(self, ack: trajectory_pb2.Ack) -> None:
        """Settles chunks, applies credit, and counts refused rows."""
        self._note_ack(ack.acked_through)
        try:
            settled = self._state.window.ack(ack.acked_through)
        except ValueError as error:
            raise WireError(str(error), code=grpc.StatusCode.INTERNAL) from None
        if settled:
            self._state.careful = False
            self._count(settled)
        self._grant(ack.credit)
        for rejection in ack.rejections:
            self._reject(rejection)
        if (failure := self._state.refusals.settled(settled, ack.rejections)) is not None:
            self._state.fail(failure)  # the stepping thread then closes the session with its books
        self._state.sendable.set()
        self._state.changed.set()

    def _note_sent(self, outgoing: OutgoingChunk) -> None:
        """Records a chunk that is about to be sent, possibly again."""
        history = self._state.history
        if history is not None:
            name = history.chunk(self._state.session.session_id, outgoing.sequence, outgoing.request.chunk.generation)
            history.write("sent", chunk=name, digest=outgoing.digest, steps=outgoing.rows)

    def _note_ack(self, through: int) -> None:
        """Records an ack that has arrived."""
        state = self._state
        if state.history is not None:
            session = state.session
            state.history.write(
                "ack_seen",
                session=session_name(session.session_id),
                epoch=session.epoch,
                generation=session.generation,
                through=through,
            )

    def _count(self, settled: list[OutgoingChunk]) -> None:
        counts, now = self._state.counts, time.monotonic()
        counts.chunks_acked += len(settled)
        for outgoing in settled:
            counts.newest_round_trip_seconds = now - outgoing.sent_at
            counts.round_trip_seconds.add(counts.newest_round_trip_seconds)

    def _grant(self, credits_: Iterable[trajectory_pb2.Credit]) -> None:
        for credit in credits_:
            gate = self._state.gate(credit.behavior_index)
            if gate is not None:
                gate.grant(credit)
        self._state.sendable.set()

    def _reject(self, rejection: trajectory_pb2.Rejection) -> None:
        state, reason = self._state, one_line(rejection.reason, 64)
        if len(state.rejected) < limits.MAX_REASONS or reason in state.rejected:
            state.rejected[reason] = state.rejected.get(reason, 0) + rejection.steps
        if rejection.steps and (left_out := state.notices.admit("rejected")) is not None:
            # Chunks after the last update of a behavior are expected to be refused.
            log = self._log.info if reason == "not_training" else self._log.warning
            log(
                "rows_rejected",
                reason=reason,
                steps=rejection.steps,
                detail=one_line(rejection.detail),
                rejected_steps=sum(state.rejected.values()),
                left_out=left_out,
            )

    def _hold(self, hold: trajectory_pb2.Hold) -> None:
        gate = self._state.gate(hold.behavior_index)
        if gate is None or not gate.apply(hold):
            return
        event = "learner_holds" if hold.active else "learner_releases"
        # Holds for updates may begin and end several times a second.
        log = self._log.debug if hold.reason == trajectory_pb2.HOLD_REASON_UPDATING else self._log.info
        log(event, reason=ActiveHold(hold.reason, 0).word, behavior_index=hold.behavior_index)
        self._state.changed.set()

    async def _drain(self, call: UploadCall, drain: trajectory_pb2.Drain) -> None:
        """Processes the learner's drain; after a final one the stepping thread closes the session.

        Raises:
            Draining: The learner will return, and the actor reconnects.
        """
        state = self._state
        message = one_line(drain.message)
        retry_seconds = min(drain.retry_after_ms / 1000, MAX_RETRY_AFTER_SECONDS)
        state.flowing = False
        if drain.final:
            self._log.info("run_finished", message=message)
            state.stop("the run is over")
            return
        self._log.info("learner_drains", message=message, retry_after_seconds=retry_seconds)
        try:
            async with asyncio.timeout(LAST_ACKS_SECONDS):
                while state.window.in_flight:
                    answer = await call.read()
                    if not isinstance(answer, trajectory_pb2.UploadResponse):
                        break
                    if answer.WhichOneof("message") == "ack":
                        self._ack(answer.ack)
        except (TimeoutError, grpc.RpcError) as error:
            self._log.debug(
                "acks_missing", chunks=state.window.in_flight, reason=type(error).__name__
            )  # sent again later
        raise Draining(message or "the learner is draining", retry_after_seconds=retry_seconds)
