"""The learner's gRPC methods: each takes the raw bytes of a request, as a server does after the identity was checked."""

from __future__ import annotations

import asyncio
import atexit
import functools
import itertools
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from rollcast.errors import WireError
from rollcast.trajectories import encode_chunk
from rollcast.v1 import policy_pb2, session_pb2, trajectory_pb2

from learner.cli.status import status_document as printed_document
from learner.service.ingest.session import ActorSession
from learner.service.ingest.session_ids import SessionIds
from learner.shared.observe.document import status_document, status_of, to_json
from learner.shared.runfolder.documents import plain
from learner.shared.settings.options import RunOptions
from tests.learner.service.calls.harness import Learner
from tests.learner.service.calls.samples import NAME, make_chunk, make_policy, make_spec
from tests.tools.fuzz.target import Target

INPUTS_A_LEARNER: Final = 500
"""Inputs after which a new learner begins, so that what one input leaves behind explains no later finding."""
ACTOR: Final = "rig-7"
SESSION: Final = "s-42"
INSTANCE: Final = "0b6f1a52-6a3e-4c35-9b0c-6d2d3d0c9a01"


class _Context:
    """The context of a call without a network; it takes what the handler writes."""

    def __init__(self) -> None:
        self.written = 0

    def peer(self) -> str:
        return "ipv4:127.0.0.1:50000"

    def time_remaining(self) -> None:
        return None

    async def write(self, message: bytes) -> None:
        assert isinstance(message, bytes)
        self.written += 1


def options() -> RunOptions:
    """Returns a run file with two behaviors."""
    behaviors = {name: {"time_horizon": 8} for name in (NAME, "Other")}
    return RunOptions.model_validate({"behaviors": behaviors})


class _FixedIds(SessionIds):
    """Gives every session the same id, which inputs can therefore name."""

    def make(self, principal: str) -> str:
        return SESSION

    def is_own(self, session_id: str, principal: str) -> bool:
        return session_id == SESSION


class Service:
    """A learner that listens nowhere, whose handlers are called with raw requests."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        atexit.register(self.loop.close)
        self._numbers = itertools.count()
        self._learner: Learner | None = None

    @property
    def learner(self) -> Learner:
        """The learner of the present input."""
        assert self._learner is not None
        return self._learner

    def call(self, service: str, method: str, data: bytes, *, declared: bool = False) -> None:
        """Calls a method, then checks that what it left behind can be shown and saved.

        Args:
            service: The service's attribute of the server.
            method: Name of the method.
            data: The raw request.
            declared: Whether there is a session with a behavior, whose id is `session_id`.
        """
        self.loop.run_until_complete(self._call(service, method, data, declared=declared))

    def upload(self, data: bytes) -> None:
        """Sends one raw message in an open upload."""
        self.loop.run_until_complete(self._upload(data))

    async def _call(self, service: str, method: str, data: bytes, *, declared: bool) -> None:
        self.begin(declared=declared)
        handler = getattr(self.learner.server, f"_{service}_service").handlers()[method]
        context = _Context()
        try:
            if handler.unary_unary is not None:
                answer = await handler.unary_unary(data, context)
                assert isinstance(answer, bytes)
            else:
                await self._until_quiet(handler.unary_stream(data, context))
        finally:
            self.end()

    async def _upload(self, data: bytes) -> None:
        session = self.begin(declared=True)
        assert session is not None
        service = self.learner.server._trajectory_service
        stream = self.learner.server._router.attach(session, session.epoch)
        try:
            await self._until_quiet(service._take(stream, data))
            for response in stream.responses():
                assert isinstance(response, bytes)
        finally:
            self.learner.server._router.detach(stream)
            self.end()

    async def _until_quiet(self, call: Coroutine[Any, Any, None]) -> None:
        """Runs a call until it ends or waits for something that no other call will bring."""
        task = asyncio.ensure_future(call)
        for _ in range(20):
            await asyncio.sleep(0)
            if task.done():
                return task.result()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return None

    def begin(self, *, declared: bool) -> ActorSession | None:
        """Begins an input; returns its session with a declared behavior, if there is to be one."""
        if next(self._numbers) % INPUTS_A_LEARNER == 0 or len(self.learner.behaviors.all()) > 8:
            self._learner = Learner(options())
            self._learner.sessions._ids = _FixedIds(bytes(32), "run")
        if not declared:
            return None
        learner = self.learner
        opened = learner.server._session_service._open(open_request())
        session = opened.session
        behavior = learner.behaviors.declare(make_spec(), 0, 4)
        learner.sessions.declare(session, behavior, 0, 4, follows_quota=False)
        learner.server._router.declared(session, behavior)
        return session

    def end(self) -> None:
        """Ends an input: what it left behind can be shown and saved."""
        learner = self.learner
        document = json.loads(to_json(status_document(learner.web_hooks.status())))
        printed_document(status_of(document))
        plain(learner.sessions.state_dict())
        for session in list(learner.sessions.live()):
            learner.sessions.close(session, [])
            learner.server._router.forget(session, None)


@functools.cache
def _service() -> Service:
    return Service()


def open_request(**changes: Any) -> session_pb2.OpenSessionRequest:
    """Returns a valid request for a session."""
    return session_pb2.OpenSessionRequest(
        protocol_revision=1,
        actor_name=ACTOR,
        instance_id=INSTANCE,
        client_version="1",
        policy_encodings=["zstd"],
        **changes,
    )


def _books() -> list[session_pb2.ActorBooks]:
    dropped = [session_pb2.ReasonCount(reason="generation", steps=3)]
    return [
        session_pb2.ActorBooks(behavior_index=0, produced_steps=20, acked_steps=15, unacked_steps=2, dropped=dropped)
    ]


def _openings() -> dict[str, bytes]:
    resume = session_pb2.ResumeSession(session_id=SESSION, epoch=1, generation=1, acked_through=4, books=_books())
    return {
        "new": open_request().SerializeToString(),
        "resumed": open_request(resume=resume, opponent="script:play").SerializeToString(),
    }


def _declarations() -> dict[str, bytes]:
    named = {"again": make_spec(), "listed": make_spec("Other", 3)}
    return {
        name: session_pb2.DeclareBehaviorRequest(
            session_id=SESSION, epoch=1, spec=spec.to_message(), agents=4, follows_quota=True
        ).SerializeToString()
        for name, spec in named.items()
    }


def _renewals() -> dict[str, bytes]:
    request = session_pb2.RenewSessionRequest(session_id=SESSION, epoch=1, books=_books())
    request.policies.add(behavior_index=0, generation=1, version=0, error="it is too new")
    request.times.wall_seconds = 12.0
    request.times.hold_seconds = 2.0
    request.environments.failures = 2
    request.environments.hanging = "environment 3 has been in step()"
    return {"full": request.SerializeToString()}


def _closings() -> dict[str, bytes]:
    request = session_pb2.CloseSessionRequest(
        session_id=SESSION, epoch=1, books=_books(), reason=session_pb2.CLOSE_REASON_ERROR, message="bye"
    )
    return {"full": request.SerializeToString()}


def _subscriptions() -> dict[str, bytes]:
    request = policy_pb2.SubscribeRequest(session_id=SESSION, epoch=1)
    request.held.add(behavior_index=0, generation=1, version=0)
    bare = policy_pb2.SubscribeRequest(session_id=SESSION, epoch=1)
    return {"held": request.SerializeToString(), "bare": bare.SerializeToString()}


def _fetches() -> dict[str, bytes]:
    digest = make_policy(0).description.sha256
    request = policy_pb2.GetPolicyRequest(session_id=SESSION, behavior=NAME, generation=1, version=0)
    pinned = policy_pb2.GetPolicyRequest(session_id=SESSION, behavior=NAME, generation=1, version=0, sha256=digest)
    return {"version": request.SerializeToString(), "digest": pinned.SerializeToString()}


def _uploads() -> dict[str, bytes]:
    chunks = {"chunk": make_chunk(), "agents": make_chunk(agents=3, discarded={"reset": 2})}
    return {
        name: trajectory_pb2.UploadRequest(chunk=encode_chunk(chunk)).SerializeToString()
        for name, chunk in chunks.items()
    }


def _opening_uploads() -> dict[str, bytes]:
    opening = trajectory_pb2.UploadOpen(session_id=SESSION, epoch=1)
    return {"open": trajectory_pb2.UploadRequest(open=opening).SerializeToString()}


async def _only(data: bytes) -> AsyncIterator[bytes]:
    yield data


def _first_message(data: bytes) -> None:
    """Opens an upload with a raw first message."""
    _service().loop.run_until_complete(_begin_upload(data))


async def _begin_upload(data: bytes) -> None:
    _service().begin(declared=True)
    try:
        stream = await _service().learner.server._trajectory_service._open(_only(data))
        _service().learner.server._router.detach(stream)
    finally:
        _service().end()


def _method(service: str, method: str, *, declared: bool = True) -> Callable[[bytes], None]:
    return lambda data: _service().call(service, method, data, declared=declared)


_WORDS: Final = (SESSION.encode(), NAME.encode(), ACTOR.encode(), INSTANCE.encode())

TARGETS = tuple(
    Target(name, use, (WireError,), seeds, words=_WORDS)
    for name, use, seeds in (
        ("open-session", _method("session", "OpenSession"), _openings),
        ("declare-behavior", _method("session", "DeclareBehavior"), _declarations),
        ("renew-session", _method("session", "RenewSession"), _renewals),
        ("close-session", _method("session", "CloseSession"), _closings),
        ("subscribe", _method("policy", "Subscribe"), _subscriptions),
        ("get-policy", _method("policy", "GetPolicy"), _fetches),
        ("upload-open", _first_message, _opening_uploads),
        ("upload-chunk", lambda data: _service().upload(data), _uploads),
    )
)
