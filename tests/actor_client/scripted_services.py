"""The gRPC services of the scripted learner, controlled by its attributes."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf.message import Message
from rollcast.errors import SequenceGap, SessionExpired, SessionFenced, VersionEvicted, WireError, to_status
from rollcast.v1 import (
    policy_pb2,
    policy_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    trajectory_pb2,
    trajectory_pb2_grpc,
)

if TYPE_CHECKING:
    from tests.actor_client.scripted import ScriptedLearner


@dataclass
class ScriptedSession:
    """The learner's state of one session."""

    session_id: str
    epoch: int = 1
    acked_through: int = 0
    books: list[session_pb2.ActorBooks] = field(default_factory=list)
    policies: list[session_pb2.PolicyReport] = field(default_factory=list)
    times: session_pb2.ActorTimes = field(default_factory=session_pb2.ActorTimes)
    renewals: int = 0
    closed: session_pb2.CloseSessionRequest | None = None


async def abort(context: Any, error: WireError) -> None:
    """Ends a call with an error."""
    await context.abort_with_status(to_status(error))


class OfLearner:
    """A service of the scripted learner."""

    def __init__(self, learner: ScriptedLearner) -> None:
        self._learner = learner


class Sessions(OfLearner, session_pb2_grpc.SessionServiceServicer):
    """Opens, resumes, renews, closes."""

    async def OpenSession(
        self, request: session_pb2.OpenSessionRequest, context: Any
    ) -> session_pb2.OpenSessionResponse:
        """Opens or resumes."""
        learner = self._learner
        learner.opened.append(request)
        if learner.fail_open:
            await abort(context, learner.fail_open.pop(0))
        session = learner.sessions.get(request.resume.session_id)
        resumed = session is not None
        if session is None:
            session = ScriptedSession(f"session-{len(learner.opened)}", epoch=0)
            learner.sessions[session.session_id] = session
        session.epoch += 1
        return session_pb2.OpenSessionResponse(
            protocol_revision=1,
            session_id=session.session_id,
            epoch=session.epoch,
            run_id=learner.run_id,
            generation=learner.generation,
            run_seed=7,
            lease_ms=round(learner.lease_seconds * 1000),
            limits=session_pb2.ChunkLimits(max_chunk_bytes=learner.max_chunk_bytes, max_chunk_age_ms=20),
            resumed=resumed,
            next_sequence=session.acked_through + 1,
            behaviors=learner.behaviors,
            column_encodings=["zstd"],
            assignment=learner.assignment,
            engine_settings=learner.engine,
            settled_through=session.acked_through if learner.settles and resumed else 0,
        )

    async def DeclareBehavior(
        self, request: session_pb2.DeclareBehaviorRequest, context: Any
    ) -> session_pb2.DeclareBehaviorResponse:
        """Numbers behaviors in the order of declaration."""
        learner = self._learner
        learner.declared.append(request)
        if learner.fail_declare:
            await abort(context, learner.fail_declare.pop(0))
        index = learner.indices.setdefault(request.spec.name, len(learner.indices))
        queue = learner.uploads.get(request.session_id)
        if queue is not None:
            acked = learner.sessions[request.session_id].acked_through
            ack = trajectory_pb2.Ack(acked_through=acked, credit=learner.credit())
            queue.put_nowait(trajectory_pb2.UploadResponse(ack=ack))
        subscriber = learner.subscribers.get(request.session_id)
        if subscriber is not None:
            for message in learner.newest.get(request.spec.name, []):
                subscriber.put_nowait(message)
        return session_pb2.DeclareBehaviorResponse(
            behavior_index=index,
            time_horizon=learner.time_horizon,
            max_policy_lag=4,
            training=True,
            awaits_assignment=request.spec.name in learner.awaits,
            replay=learner.replay,
        )

    async def RenewSession(
        self, request: session_pb2.RenewSessionRequest, context: Any
    ) -> session_pb2.RenewSessionResponse:
        """Keeps the report."""
        learner = self._learner
        if learner.fail_renew:
            await abort(context, learner.fail_renew.pop(0))
        session = await own_session(learner, request.session_id, request.epoch, context)
        session.renewals += 1
        session.books = list(request.books)
        session.policies = list(request.policies)
        session.times = request.times
        return session_pb2.RenewSessionResponse(
            lease_ms=round(learner.lease_seconds * 1000), report_ms=round(learner.report_seconds * 1000)
        )

    async def CloseSession(
        self, request: session_pb2.CloseSessionRequest, context: Any
    ) -> session_pb2.CloseSessionResponse:
        """Keeps the request."""
        session = await own_session(self._learner, request.session_id, request.epoch, context)
        session.closed = request
        session.books = list(request.books)
        return session_pb2.CloseSessionResponse()


async def own_session(learner: ScriptedLearner, session_id: str, epoch: int, context: Any) -> ScriptedSession:
    """Returns a session to the opening that owns it; ends the call otherwise."""
    session = learner.sessions.get(session_id)
    if session is None:
        await abort(context, SessionExpired(f"session {session_id} is unknown"))
        raise AssertionError("unreachable")
    if session.epoch != epoch:
        await abort(context, SessionFenced(f"epoch {epoch} is not {session.epoch}"))
    return session


class Trajectories(OfLearner, trajectory_pb2_grpc.TrajectoryServiceServicer):
    """Takes chunks."""

    async def Upload(self, request_iterator: Any, context: Any) -> None:  # type: ignore[override]
        """Takes chunks until told otherwise."""
        learner = self._learner
        learner.upload_peers.append(context.peer())
        opening = (await context.read()).open
        session = await own_session(learner, opening.session_id, opening.epoch, context)
        if learner.fail_upload:
            await abort(context, learner.fail_upload.pop(0))
        queue: asyncio.Queue[trajectory_pb2.UploadResponse | WireError] = asyncio.Queue()
        learner.uploads[session.session_id] = queue
        opened = trajectory_pb2.UploadOpened(
            next_sequence=session.acked_through + 1, credit=learner.credit(), holds=learner.holds
        )
        await context.write(trajectory_pb2.UploadResponse(opened=opened))
        reader = asyncio.ensure_future(self._read(context, session, queue))
        getter = asyncio.ensure_future(queue.get())
        try:
            while True:
                await asyncio.wait({reader, getter}, return_when=asyncio.FIRST_COMPLETED)
                if not getter.done():
                    reader.result()
                    return
                message = getter.result()
                getter = asyncio.ensure_future(queue.get())
                if isinstance(message, WireError):
                    await abort(context, message)
                else:
                    await context.write(message)
        finally:
            reader.cancel()
            getter.cancel()
            if learner.uploads.get(session.session_id) is queue:
                del learner.uploads[session.session_id]

    async def _read(self, context: Any, session: ScriptedSession, queue: asyncio.Queue[Any]) -> None:
        learner = self._learner
        while True:
            request = await context.read()
            if not isinstance(request, Message):
                return
            chunk = request.chunk  # type: ignore[attr-defined]
            rejections = []
            if chunk.sequence <= session.acked_through:
                learner.duplicates += 1
            elif chunk.sequence > session.acked_through + 1:
                queue.put_nowait(
                    SequenceGap(f"received chunk {chunk.sequence}, expected chunk {session.acked_through + 1}")
                )
                return
            else:
                session.acked_through = chunk.sequence
                learner.chunks.append(chunk)
                learner.accepted[session.session_id] = learner.accepted.get(session.session_id, 0) + chunk.rows
                if learner.reject:
                    rejections.append(
                        trajectory_pb2.Rejection(sequence=chunk.sequence, reason=learner.reject, steps=chunk.rows)
                    )
            if learner.break_after is not None:
                learner.break_after -= 1
                if learner.break_after <= 0:
                    queue.put_nowait(learner.break_with or WireError("cut", code=grpc.StatusCode.UNAVAILABLE))
                    learner.break_after = 1 if learner.break_with is not None else None
                    return
            if learner.acking:
                ack = trajectory_pb2.Ack(
                    acked_through=session.acked_through, credit=learner.credit(), rejections=rejections
                )
                queue.put_nowait(trajectory_pb2.UploadResponse(ack=ack))


class Policies(OfLearner, policy_pb2_grpc.PolicyServiceServicer):
    """Broadcasts policies."""

    async def Subscribe(self, request: policy_pb2.SubscribeRequest, context: Any) -> None:  # type: ignore[override]
        """Sends the assignment and the newest policies that are not held, then all that come."""
        learner = self._learner
        learner.policy_peers.append(context.peer())
        learner.subscriptions.append(request)
        session = await own_session(learner, request.session_id, request.epoch, context)
        queue: asyncio.Queue[policy_pb2.SubscribeResponse] = asyncio.Queue()
        learner.subscribers[session.session_id] = queue
        await context.write(
            policy_pb2.SubscribeResponse(assignment=learner.assignment)
        )  # it may have come since the session was opened
        held = {(policy.behavior_index, policy.generation, policy.version) for policy in request.held}
        for messages in learner.newest.values():
            header = messages[0].header
            if (header.behavior_index, header.generation, header.version) not in held:
                for message in messages:
                    await context.write(message)
        try:
            while True:
                await context.write(await queue.get())
        finally:
            if learner.subscribers.get(session.session_id) is queue:
                del learner.subscribers[session.session_id]

    async def GetPolicy(self, request: policy_pb2.GetPolicyRequest, context: Any) -> None:  # type: ignore[override]
        """Sends what a test has kept, a version that is not the newest."""
        learner = self._learner
        learner.asked_for.append(request)
        if (kept := learner.kept.get((request.behavior, request.version))) is None:
            await abort(context, VersionEvicted(f"version {request.version} is not held"))
        for message in kept or ():
            await context.write(message)
