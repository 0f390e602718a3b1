"""A learner on a real gRPC server that does what a test tells it.

It keeps sessions, counts what it accepted, and fails in every way that a network and a learner can.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

import grpc
from google.protobuf.message import Message
from rollcast.channels import server_options
from rollcast.enums import Distribution
from rollcast.errors import SequenceGap, SessionExpired, SessionFenced, WireError, to_status
from rollcast.policies import PolicyDescription, describe_payload, frames
from rollcast.v1 import (
    policy_pb2,
    policy_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    trajectory_pb2,
    trajectory_pb2_grpc,
)

PLENTY = 1 << 40
DEAD_SECONDS = 20.0  # after this a test has failed; never reached otherwise

T = TypeVar("T")


@dataclass
class ScriptedSession:
    """What the learner knows of one session."""

    session_id: str
    epoch: int = 1
    acked_through: int = 0
    books: list[session_pb2.ActorBooks] = field(default_factory=list)
    policies: list[session_pb2.PolicyReport] = field(default_factory=list)
    renewals: int = 0
    closed: session_pb2.CloseSessionRequest | None = None


class ScriptedLearner:
    """A learner for tests; knobs are plain attributes, verbs are methods.

    Attributes:
        fail_open: errors for the next calls of OpenSession, first to last.
        fail_declare: errors for the next calls of DeclareBehavior.
        behaviors: names that the run file has; empty = any.
        lease_seconds: of every session.
        steps_through: credit in steps that every message grants.
        bytes_through: credit in bytes.
        acking: False: chunks are taken, acks are kept back.
        break_after: end the upload stream after so many more chunks, before their ack.
        break_with: with this error, and again at each later chunk.
        reject: the reason under which rows are refused inside acks.
        holds: active holds, told at each opening of a stream.
        accepted: rows of every chunk that was taken once, by session.
        duplicates: chunks that came again.
        chunks: every chunk that was taken once.
        opened: every OpenSession request.
        peers: addresses from which uploads and subscriptions came.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.generation = 1
        self.run_id = "run"
        self.behaviors: tuple[str, ...] = ()
        self.lease_seconds = 30.0
        self.time_horizon = 64
        self.max_chunk_bytes = 4 << 20
        self.steps_through = PLENTY
        self.bytes_through = PLENTY
        self.acking = True
        self.break_after: int | None = None
        self.break_with: WireError | None = None
        self.reject = ""
        self.fail_open: list[WireError] = []
        self.fail_declare: list[WireError] = []
        self.fail_renew: list[WireError] = []
        self.fail_upload: list[WireError] = []
        self.holds: list[trajectory_pb2.Hold] = []
        self.sessions: dict[str, ScriptedSession] = {}
        self.indices: dict[str, int] = {}
        self.newest: dict[str, list[policy_pb2.SubscribeResponse]] = {}
        self.accepted: dict[str, int] = {}
        self.duplicates = 0
        self.chunks: list[trajectory_pb2.Chunk] = []
        self.opened: list[session_pb2.OpenSessionRequest] = []
        self.declared: list[session_pb2.DeclareBehaviorRequest] = []
        self.subscriptions: list[policy_pb2.SubscribeRequest] = []
        self.upload_peers: list[str] = []
        self.policy_peers: list[str] = []
        self.uploads: dict[str, asyncio.Queue[trajectory_pb2.UploadResponse | WireError]] = {}
        self.subscribers: dict[str, asyncio.Queue[policy_pb2.SubscribeResponse]] = {}
        self._server: grpc.aio.Server | None = None

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="scripted-learner", daemon=True)
        self._thread.start()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.run(self._finish())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _finish(self) -> None:
        """Ends the handlers that the server has left behind."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the learner's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEAD_SECONDS)

    def listen(self) -> None:
        """Begins to answer, at the port it had before."""
        self.run(self._listen())

    async def _listen(self) -> None:
        server = grpc.aio.server(options=server_options())
        session_pb2_grpc.add_SessionServiceServicer_to_server(Sessions(self), server)
        trajectory_pb2_grpc.add_TrajectoryServiceServicer_to_server(Trajectories(self), server)
        policy_pb2_grpc.add_PolicyServiceServicer_to_server(Policies(self), server)
        self.port = server.add_insecure_port(f"127.0.0.1:{self.port}")
        await server.start()
        self._server = server

    def hang_up(self) -> None:
        """Stops answering, at once; what it knows stays."""
        if self._server is not None:
            self.run(self._server.stop(None))
        self._server = None

    def restart(self, *, forget: bool = False) -> None:
        """Comes back as a new start of the learner, with the sessions of its checkpoint or without."""
        self.hang_up()
        self.generation += 1
        if forget:
            self.sessions.clear()
        self.newest.clear()
        self.listen()

    @property
    def session(self) -> ScriptedSession:
        """The newest session."""
        return list(self.sessions.values())[-1]

    def credit(self) -> list[trajectory_pb2.Credit]:
        """What every message grants."""
        return [
            trajectory_pb2.Credit(
                behavior_index=index, steps_through=self.steps_through, bytes_through=self.bytes_through
            )
            for index in self.indices.values()
        ]

    def tell(self, *responses: trajectory_pb2.UploadResponse | WireError) -> None:
        """Sends something, or ends with an error, on every upload stream."""

        async def put() -> None:
            for queue in self.uploads.values():
                for response in responses:
                    queue.put_nowait(response)

        self.run(put())

    def ack(self) -> None:
        """Acks everything taken so far, with credit."""
        ack = trajectory_pb2.Ack(acked_through=self.session.acked_through, credit=self.credit())
        self.tell(trajectory_pb2.UploadResponse(ack=ack))

    def hold(self, reason: int, *, active: bool, until_version: int = 0, behavior_index: int = 0) -> None:
        """Begins or ends a hold."""
        hold = trajectory_pb2.Hold(
            behavior_index=behavior_index,
            reason=trajectory_pb2.HoldReason.ValueType(reason),
            active=active,
            until_version=until_version,
        )
        self.tell(trajectory_pb2.UploadResponse(hold=hold))

    def drain(self, *, final: bool, retry_after_ms: int = 0) -> None:
        """Says that it is about to stop."""
        drain = trajectory_pb2.Drain(final=final, retry_after_ms=retry_after_ms, message="as the test says")
        self.tell(trajectory_pb2.UploadResponse(drain=drain))

    def publish(self, behavior: str, version: int, *, payload: bytes | None = None, corrupt: bool = False) -> None:
        """Broadcasts a policy; a corrupt one has other bytes than its header says."""
        payload = payload if payload is not None else f"{behavior} {version}".encode()
        header = describe_payload(
            policy_description(behavior, self.indices[behavior], self.generation, version), payload
        )
        sent = bytes(len(payload)) if corrupt else payload
        messages = [policy_pb2.SubscribeResponse(header=header.to_message())]
        messages += [policy_pb2.SubscribeResponse(frame=frame) for frame in frames(sent)]
        self.newest[behavior] = messages

        async def put() -> None:
            for queue in self.subscribers.values():
                for message in messages:
                    queue.put_nowait(message)

        self.run(put())

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for something to become true."""
        wait_until(condition)


def policy_description(behavior: str, index: int, generation: int, version: int) -> PolicyDescription:
    """A valid description of a policy with one observation and one branch."""
    return PolicyDescription(
        behavior_index=index,
        behavior=behavior,
        generation=generation,
        version=version,
        architecture_hash=bytes(32),
        inputs=("obs_0", "action_masks"),
        outputs=("logits",),
        discrete_distribution=Distribution.CATEGORICAL,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for something to become true.

    Raises:
        AssertionError: it did not, by far.
    """
    patience = threading.Event()
    for _ in range(int(DEAD_SECONDS / 0.005)):
        if condition():
            return
        patience.wait(0.005)
    raise AssertionError("waited in vain")


async def abort(context: Any, error: WireError) -> None:
    """Ends a call with an error."""
    await context.abort_with_status(to_status(error))


class Sessions(session_pb2_grpc.SessionServiceServicer):
    """Opens, resumes, renews, closes."""

    def __init__(self, learner: ScriptedLearner) -> None:
        self._learner = learner

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
        )

    async def DeclareBehavior(
        self, request: session_pb2.DeclareBehaviorRequest, context: Any
    ) -> session_pb2.DeclareBehaviorResponse:
        """Numbers behaviors in the order of their declaration."""
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
            behavior_index=index, time_horizon=learner.time_horizon, max_policy_lag=4, training=True
        )

    async def RenewSession(
        self, request: session_pb2.RenewSessionRequest, context: Any
    ) -> session_pb2.RenewSessionResponse:
        """Keeps the report."""
        learner = self._learner
        if learner.fail_renew:
            await abort(context, learner.fail_renew.pop(0))
        session = await self._session(request.session_id, request.epoch, context)
        session.renewals += 1
        session.books = list(request.books)
        session.policies = list(request.policies)
        return session_pb2.RenewSessionResponse(lease_ms=round(learner.lease_seconds * 1000))

    async def CloseSession(
        self, request: session_pb2.CloseSessionRequest, context: Any
    ) -> session_pb2.CloseSessionResponse:
        """Keeps the request."""
        session = await self._session(request.session_id, request.epoch, context)
        session.closed = request
        session.books = list(request.books)
        return session_pb2.CloseSessionResponse()

    async def _session(self, session_id: str, epoch: int, context: Any) -> ScriptedSession:
        return await own_session(self._learner, session_id, epoch, context)


async def own_session(learner: ScriptedLearner, session_id: str, epoch: int, context: Any) -> ScriptedSession:
    """Returns a session to the opening that owns it; ends the call otherwise."""
    session = learner.sessions.get(session_id)
    if session is None:
        await abort(context, SessionExpired(f"session {session_id} is unknown"))
        raise AssertionError("unreachable")
    if session.epoch != epoch:
        await abort(context, SessionFenced(f"epoch {epoch} is not {session.epoch}"))
    return session


class Trajectories(trajectory_pb2_grpc.TrajectoryServiceServicer):
    """Takes chunks."""

    def __init__(self, learner: ScriptedLearner) -> None:
        self._learner = learner

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
                queue.put_nowait(SequenceGap(f"chunk {chunk.sequence} came, {session.acked_through + 1} is next"))
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


class Policies(policy_pb2_grpc.PolicyServiceServicer):
    """Broadcasts policies."""

    def __init__(self, learner: ScriptedLearner) -> None:
        self._learner = learner

    async def Subscribe(self, request: policy_pb2.SubscribeRequest, context: Any) -> None:  # type: ignore[override]
        """Sends the newest policies that are not held, then all that come."""
        learner = self._learner
        learner.policy_peers.append(context.peer())
        learner.subscriptions.append(request)
        session = await own_session(learner, request.session_id, request.epoch, context)
        queue: asyncio.Queue[policy_pb2.SubscribeResponse] = asyncio.Queue()
        learner.subscribers[session.session_id] = queue
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
        """Is not scripted."""
        await abort(context, WireError("not scripted", code=grpc.StatusCode.UNIMPLEMENTED))


def at_version(description: PolicyDescription, version: int) -> PolicyDescription:
    """The same description of another version."""
    return replace(description, version=version)
