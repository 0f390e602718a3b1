"""Runs a learner's service on real sockets with a small actor."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import http.client
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from rollcast.auth import authorization
from rollcast.channels import channel_options
from rollcast.errors import WireError, from_rpc_error
from rollcast.specs import BehaviorSpec
from rollcast.tls import ClientSecurity
from rollcast.trajectories import Chunk, encode_chunk
from rollcast.v1 import (
    policy_pb2,
    policy_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    trajectory_pb2,
    trajectory_pb2_grpc,
)

from learner.link.channel import Link, Transport
from learner.link.control import Ending, SettingChange
from learner.link.to_front import Pace, Policy
from learner.service.calls.run_info import RunInfo
from learner.service.calls.server import LearnerServer
from learner.service.identity.setup import Identity
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.memory_estimates import Estimator
from learner.service.ingest.session_ids import SessionIds
from learner.service.ingest.sessions import SessionTable
from learner.service.ingest.snapshots import restore
from learner.service.metrics.learner import LearnerMetrics
from learner.service.policies.store import PolicyStore
from learner.service.run.run_status import RunStatus
from learner.service.web.learner_hooks import RunHooks
from learner.service.web.operator_token import OperatorToken
from learner.service.web.server import WebServer
from learner.shared.observe.document import status_of
from learner.shared.observe.view import RunState, RunView, StatusView
from learner.shared.policies import StoredPolicy
from learner.shared.runfolder.received import ReceivedSteps
from learner.shared.runfolder.snapshots import SnapshotFiles
from learner.shared.settings.options import RunOptions
from tests.coded_link import coded
from tests.exposition import samples
from tests.learner.judging import accept
from tests.learner.link.far_side import Trainers
from tests.learner.service.calls.samples import make_options, make_policy, make_spec

PAGE_TOKEN = "a-token-of-the-page-alone"  # noqa: S105 - of tests
KEY = bytes(32)
"""Key of session ids, the same in all starts of a test."""
SECONDS = 300.0
"""No step of a test waits longer; a limit for hangs, not a measurement."""


@dataclass
class Hooks:
    """Records the operators' calls."""

    calls: list[str] = field(default_factory=list)
    error: Exception | None = None
    view: RunView = field(default_factory=lambda: RunView("run", RunState.TRAINING, 1, 12.5, "127.0.0.1:1"))

    def pause(self) -> None:
        """Records the call, and fails if the test says so."""
        self.calls.append("pause")
        if self.error is not None:
            raise self.error

    def resume(self) -> None:
        """Records the call."""
        self.calls.append("resume")

    def save_checkpoint(self, timeout_seconds: float) -> str:
        """Records the call and fails if the test says so."""
        self.calls.append("save")
        if self.error is not None:
            raise self.error
        return f"/checkpoint after {timeout_seconds > 0}"

    def change(self, values: Mapping[str, str], principal: str) -> tuple[SettingChange, ...]:
        """Records the call and fails if the test says so."""
        self.calls.append(f"{dict(values) or 'undo'} by {principal}")
        if self.error is not None:
            raise self.error
        return tuple(SettingChange(name, 1, text) for name, text in values.items())

    def drain(self, *, final: bool) -> None:
        """Records the call."""
        self.calls.append(f"drain {final}")


class Learner:
    """All parts that meet in the service."""

    def __init__(
        self,
        options: RunOptions,
        *,
        generation: int = 1,
        address: str = "127.0.0.1:0",
        state: Mapping[str, Any] | None = None,
        assignment: policy_pb2.Assignment | None = None,
        has_policy: bool = True,
        hooks: Hooks | None = None,
        task: policy_pb2.BehaviorAssignment | None = None,
        judge_declaration: Estimator = accept,
        snapshots: SnapshotFiles | None = None,
        identity: Identity | None = None,
        transport: Transport = coded,
        received: ReceivedSteps | None = None,
    ) -> None:
        self.options = options
        self.expected_incidents = 0
        self.ledger = Ledger()
        self.link = Link(transport)
        self.trainers = Trainers(self.link)
        self.ends: list[Ending] = []
        self.behaviors = BehaviorTable(options, self.ledger, judge_declaration, self.link.to_trainers.send)
        self.sessions = SessionTable(self.behaviors, self.ledger, generation=generation, ids=SessionIds(KEY, "run"))
        if state is not None:
            restore(state, self.behaviors, self.sessions, self.ledger)
        if received is not None:
            found = received.read()
            if found is not None:
                self.sessions.recover(found)
            names = [behavior.name for behavior in self.behaviors.all()]
            received.begin(names, self.ledger.received(), self.sessions.received())
            self.sessions.keep_record(received)
        self.store = PolicyStore()
        if has_policy:  # rows cannot act under a policy before there is one
            self.store.publish(make_policy(0, generation=generation))
        self.hooks = hooks or Hooks()
        self.metrics = LearnerMetrics()
        self.run_status = RunStatus(
            self.behaviors,
            self.sessions,
            self.ledger,
            self.store,
            options.rollcast,
            run_id="run",
            generation=generation,
        )
        self.server = LearnerServer(
            address=address,
            settings=options.rollcast,
            behaviors=self.behaviors,
            sessions=self.sessions,
            ledger=self.ledger,
            store=self.store,
            run=RunInfo.from_options(
                options, run_id="run", generation=generation, run_seed=7, server_version="test", assignment=assignment
            ),
            metrics=self.metrics,
            link=self.link,
            status=self.run_status,
            on_end=self.ends.append,
            task=task,
            snapshots=snapshots,
            identity=identity,
        )

        self._identity = identity
        self._web: WebServer | None = None
        self.web_hooks = RunHooks(
            self.hooks,
            lambda: self.hooks.view,
            self.sessions,
            self.metrics,
            rates=self.server.rates,
            is_serving=lambda: self.server.is_serving,
            history=self.run_status.history,
            version="test",
        )

    async def operators(self) -> str:
        """Returns the address at which operators are served."""
        if self._web is None:
            self._web = WebServer(
                self.web_hooks, address="127.0.0.1:0", token=OperatorToken(PAGE_TOKEN), identity=self._identity
            )
            await self._web.start()
        return self._web.address

    async def stop(self) -> None:
        """Stops everything."""
        await self.server.stop()
        if self._web is not None:
            await self._web.stop()

    def end_lease(self, actor: Actor) -> None:
        """Ends an actor's lease, as time would."""
        self.sessions.find(actor.session_id).lease_until = self.sessions.clock()
        self.server._session_service.expire()

    def forgive(self) -> None:
        """Lets actors have any number of faults of form, for tests of more than two."""
        self.sessions.quarantine.note = lambda place, fault: None  # type: ignore[method-assign]

    def metric(self, name: str, **labels: str) -> float:
        """Returns one sample of the metrics."""
        return samples(self.metrics.exposition())[name, tuple(sorted(labels.items()))]

    @property
    def behavior(self) -> Behavior:
        """Returns the first behavior."""
        behavior = self.behaviors.by_index(0)
        assert behavior is not None
        return behavior

    def publish(self, policy: StoredPolicy) -> None:
        """Sends a policy as a trainer does."""
        self.link.to_front.send(Policy(policy))

    def pace(self, **values: Any) -> None:
        """Sets the pace of the first behavior, as its trainer would."""
        self.trainers.settle(pace=Pace(**values))


@asynccontextmanager
async def running(options: RunOptions | None = None, **parts: Any) -> AsyncIterator[Learner]:
    """Starts a learner's service for a block and checks that it has no unexpected error."""
    learner = Learner(options or make_options(), **parts)
    try:
        await learner.server.start()
        yield learner
    finally:
        await learner.stop()
    assert learner.server.incidents == learner.expected_incidents
    assert learner.ends == []


class Upload:
    """An actor's upload stream."""

    def __init__(self, call: Any) -> None:
        self.call = call

    async def send(self, chunk: Chunk) -> None:
        """Sends a chunk."""
        await self.send_message(encode_chunk(chunk))

    async def deliver(self, *chunks: Chunk) -> trajectory_pb2.Ack:
        """Sends chunks, and returns the acks up to the last one; see `ack`."""
        for chunk in chunks:
            await self.send(chunk)
        return await self.ack(chunks[-1].sequence)

    async def send_message(self, chunk: trajectory_pb2.Chunk) -> None:
        """Sends an encoded chunk."""
        await self.call.write(trajectory_pb2.UploadRequest(chunk=chunk))

    async def read(self) -> trajectory_pb2.UploadResponse:
        """Reads one response.

        Raises:
            WireError: The stream ended with a status.
        """
        try:
            async with asyncio.timeout(SECONDS):
                response = await self.call.read()
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None
        if response is grpc.aio.EOF:
            raise EOFError("the stream ended well")
        assert isinstance(response, trajectory_pb2.UploadResponse)
        return response

    async def ack(self, through: int) -> trajectory_pb2.Ack:
        """Reads until a sequence is acked; returns all acks on the way as one."""
        merged = trajectory_pb2.Ack()
        while merged.acked_through < through:
            response = await self.read()
            if response.WhichOneof("message") == "ack":
                merged.acked_through = response.ack.acked_through
                merged.credit.extend(response.ack.credit)
                merged.rejections.extend(response.ack.rejections)
        return merged

    async def until(self, kind: str) -> Any:
        """Reads until a response of a kind comes, and returns its content."""
        while True:
            response = await self.read()
            if response.WhichOneof("message") == kind:
                return getattr(response, kind)

    async def failure(self) -> WireError:
        """Reads until the stream fails, and returns why."""
        while True:
            try:
                await self.read()
            except WireError as error:
                return error

    async def finish(self) -> None:
        """Half-closes the stream and reads it to the end."""
        await self.call.done_writing()
        while True:
            try:
                await self.read()
            except EOFError:
                return


class _Signed:
    """A stub whose calls carry metadata."""

    def __init__(self, stub: Any, metadata: tuple[tuple[str, str], ...]) -> None:
        self._stub = stub
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return functools.partial(getattr(self._stub, name), metadata=self._metadata)


class Actor:
    """A client with its own channel."""

    def __init__(
        self,
        port: int,
        name: str = "actor",
        options: Sequence[tuple[str, Any]] | None = None,
        *,
        token: str | None = None,
        security: ClientSecurity = ClientSecurity(),  # noqa: B008 - frozen
    ) -> None:
        self.channel = security.aio_channel(f"127.0.0.1:{port}", options or channel_options())
        metadata = security.metadata() if token is None else authorization(token)
        self.sessions: Any = _Signed(session_pb2_grpc.SessionServiceStub(self.channel), metadata)
        self.trajectories: Any = _Signed(trajectory_pb2_grpc.TrajectoryServiceStub(self.channel), metadata)
        self.policies: Any = _Signed(policy_pb2_grpc.PolicyServiceStub(self.channel), metadata)
        self.name = name
        self.instance_id = str(uuid.uuid4())
        self.session_id = ""
        self.epoch = 0

    async def __aenter__(self) -> Actor:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.channel.close()

    async def call(self, method: Any, request: Any) -> Any:
        """Makes a unary call.

        Raises:
            WireError: It failed.
        """
        try:
            return await method(request, timeout=SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            raise from_rpc_error(error) from None

    async def open(self, **request: Any) -> session_pb2.OpenSessionResponse:
        """Opens a session; keyword arguments replace fields of the request."""
        fields: dict[str, Any] = {
            "protocol_revision": 1,
            "actor_name": self.name,
            "instance_id": self.instance_id,
        } | request
        response = await self.call(self.sessions.OpenSession, session_pb2.OpenSessionRequest(**fields))
        assert isinstance(response, session_pb2.OpenSessionResponse)
        self.session_id, self.epoch = response.session_id, response.epoch
        return response

    async def declare(
        self, spec: BehaviorSpec | None = None, *, team: int = 0, agents: int = 1, follows_quota: bool = False
    ) -> session_pb2.DeclareBehaviorResponse:
        """Declares a behavior."""
        response = await self.call(
            self.sessions.DeclareBehavior,
            session_pb2.DeclareBehaviorRequest(
                session_id=self.session_id,
                epoch=self.epoch,
                spec=(spec or make_spec()).to_message(),
                team=team,
                agents=agents,
                follows_quota=follows_quota,
            ),
        )
        assert isinstance(response, session_pb2.DeclareBehaviorResponse)
        return response

    async def renew(self, **fields: Any) -> session_pb2.RenewSessionResponse:
        """Renews the lease."""
        request = session_pb2.RenewSessionRequest(session_id=self.session_id, epoch=self.epoch, **fields)
        response = await self.call(self.sessions.RenewSession, request)
        assert isinstance(response, session_pb2.RenewSessionResponse)
        return response

    async def close(self, **fields: Any) -> None:
        """Closes the session."""
        request = session_pb2.CloseSessionRequest(session_id=self.session_id, epoch=self.epoch, **fields)
        await self.call(self.sessions.CloseSession, request)

    async def upload(self, *, epoch: int | None = None) -> Upload:
        """Starts an upload without reading the first response."""
        upload = Upload(self.trajectories.Upload())
        opening = trajectory_pb2.UploadOpen(session_id=self.session_id, epoch=self.epoch if epoch is None else epoch)
        with contextlib.suppress(grpc.aio.AioRpcError):  # a refusal that came first; whoever reads gets it
            await upload.call.write(trajectory_pb2.UploadRequest(open=opening))
        return upload

    async def join(self, **declaration: Any) -> Upload:
        """Opens a session, declares a behavior and begins an upload; reads `opened`."""
        await self.open()
        await self.declare(**declaration)
        return await self.opened_upload()

    async def opened_upload(self) -> Upload:
        """Begins an upload; reads `opened`."""
        upload = await self.upload()
        await upload.until("opened")
        return upload

    async def enter(self, spec: BehaviorSpec | None = None) -> None:
        """Opens a session and declares a behavior."""
        await self.open()
        await self.declare(spec)

    def subscribe(self, *held: policy_pb2.HeldPolicy) -> Any:
        """Starts a subscription."""
        return self.policies.Subscribe(
            policy_pb2.SubscribeRequest(session_id=self.session_id, epoch=self.epoch, held=held)
        )


async def read_policy(call: Any) -> tuple[policy_pb2.PolicyHeader, bytes]:
    """Reads one whole policy of a subscription."""
    async with asyncio.timeout(SECONDS):
        header = (await call.read()).header
        payload = b""
        while len(payload) < header.encoded_bytes:
            frame = (await call.read()).frame
            assert frame.offset == len(payload)
            payload += frame.data
    return header, payload


async def eventually(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    async with asyncio.timeout(SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


@dataclass(frozen=True)
class Said:
    """What the HTTP port answers."""

    status: int
    document: Any

    @property
    def reason(self) -> str:
        """Returns the reason of an error."""
        return str(self.document["error"]["reason"])


async def ask(learner: Learner, path: str, method: str = "POST", *, token: str | None = PAGE_TOKEN) -> Said:
    """Sends a request to the HTTP port over a new connection."""
    host, _, port = (await learner.operators()).rpartition(":")

    def exchange() -> Said:
        connection = http.client.HTTPConnection(host, int(port), timeout=SECONDS)
        try:
            connection.request(method, path, headers={} if token is None else dict(authorization(token)))
            response = connection.getresponse()
            return Said(response.status, json.loads(response.read()))
        finally:
            connection.close()

    return await asyncio.to_thread(exchange)


async def status_of_run(learner: Learner, *, token: str | None = None) -> StatusView:
    """Returns the state of the run as its document tells it."""
    return status_of((await ask(learner, "/api/status", "GET", token=token)).document)


async def failure(awaitable: Awaitable[Any]) -> WireError:
    """Returns the error that a call fails with."""
    try:
        await awaitable
    except WireError as error:
        return error
    except grpc.RpcError as error:
        return from_rpc_error(error)
    raise AssertionError("the call did not fail")
