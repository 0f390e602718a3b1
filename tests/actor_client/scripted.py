"""A learner on a real gRPC server that follows the test's instructions.

It keeps sessions, counts what it accepted, and fails in every way that a network and a learner can.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import replace
from typing import Any, Self, TypeVar

import grpc
from rollcast.channels import server_options
from rollcast.enums import Distribution
from rollcast.errors import WireError
from rollcast.policies import PolicyDescription, describe_payload, frames
from rollcast.v1 import (
    policy_pb2,
    policy_pb2_grpc,
    session_pb2,
    session_pb2_grpc,
    trajectory_pb2,
    trajectory_pb2_grpc,
)

from tests.actor_client.scripted_services import Policies, ScriptedSession, Sessions, Trajectories

PLENTY = 1 << 40
DEAD_SECONDS = 300.0  # after this a test has failed; never reached otherwise

T = TypeVar("T")


class InThread:
    """Something that runs in the event loop of its own thread, at one port."""

    port: int

    @property
    def address(self) -> str:
        """Returns where it listens."""
        return f"127.0.0.1:{self.port}"

    def begin(self) -> None:
        """Starts the thread."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="in-thread", daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine in the thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(DEAD_SECONDS)

    def end(self) -> None:
        """Ends the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class ScriptedLearner(InThread):
    """A learner for tests, controlled by attributes and methods.

    Attributes:
        fail_open: Errors for the next calls of OpenSession, first to last.
        fail_declare: Errors for the next calls of DeclareBehavior.
        behaviors: Names that the run file has; empty = any.
        assignment: What every opening asks for.
        engine: Settings for game engines, told at every opening.
        lease_seconds: Of every session.
        report_seconds: How often renewals are asked for; 0 leaves it to the lease.
        steps_through: Credit in steps that every message grants.
        bytes_through: Credit in bytes.
        acking: False: chunks are taken, acks are kept back.
        break_after: End the upload stream after so many more chunks, before their ack.
        break_with: With this error, and again at each later chunk.
        reject: The reason under which rows are refused inside acks.
        holds: Active holds, told at each opening of a stream.
        accepted: Rows of every chunk that was taken once, by session.
        duplicates: Chunks that came again.
        chunks: Every chunk that was taken once.
        opened: Every OpenSession request.
        kept: Messages of versions that can be asked for, by behavior and version.
        asked_for: Every GetPolicy request.
        awaits: Behaviors that act only when an assignment gives them a task.
        peers: Addresses from which uploads and subscriptions came.
        replay: Whether it trains experience of any age.
        settles: Whether it tells a returning actor what it received.
        inlines: Whether policies come in one message with their headers.
    """

    def __init__(self, port: int = 0) -> None:
        self.port = port
        self.generation = 1
        self.run_id = "run"
        self.behaviors: tuple[str, ...] = ()
        self.assignment = policy_pb2.Assignment()
        self.engine = session_pb2.EngineSettings()
        self.lease_seconds = 30.0
        self.report_seconds = 0.0
        self.time_horizon = 64
        self.max_chunk_bytes = 4 << 20
        self.steps_through = PLENTY
        self.bytes_through = PLENTY
        self.acking = True
        self.inlines = False
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
        self.awaits: set[str] = set()
        self.replay = False
        self.settles = False
        self.kept: dict[tuple[str, int], list[policy_pb2.GetPolicyResponse]] = {}
        self.asked_for: list[policy_pb2.GetPolicyRequest] = []
        self.upload_peers: list[str] = []
        self.policy_peers: list[str] = []
        self.uploads: dict[str, asyncio.Queue[trajectory_pb2.UploadResponse | WireError]] = {}
        self.subscribers: dict[str, asyncio.Queue[policy_pb2.SubscribeResponse]] = {}
        self._server: grpc.aio.Server | None = None

    def __enter__(self) -> Self:
        self.begin()
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        self.hang_up()
        self.run(self._finish())
        self.end()

    async def _finish(self) -> None:
        """Ends the handlers that the server has left behind."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def listen(self) -> None:
        """Starts to answer at its former port."""
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
        """Restarts as a new generation, with or without the sessions of its checkpoint."""
        self.hang_up()
        self.generation += 1
        if forget:
            self.sessions.clear()
        self.newest.clear()
        self.listen()

    @property
    def session(self) -> ScriptedSession:
        """Returns the newest session."""
        return list(self.sessions.values())[-1]

    def credit(self) -> list[trajectory_pb2.Credit]:
        """Returns what every message grants."""
        return [
            trajectory_pb2.Credit(
                behavior_index=index, steps_through=self.steps_through, bytes_through=self.bytes_through
            )
            for index in self.indices.values()
        ]

    def tell(self, *responses: trajectory_pb2.UploadResponse | WireError) -> None:
        """Sends something, or ends with an error, on every upload stream."""
        self._put(self.uploads, responses)

    def _put(self, queues: Mapping[str, asyncio.Queue[T]], messages: Iterable[T]) -> None:
        async def put() -> None:
            for queue in queues.values():
                for message in messages:
                    queue.put_nowait(message)

        self.run(put())

    def ack(self) -> None:
        """Acks everything taken, with credit."""
        ack = trajectory_pb2.Ack(acked_through=self.session.acked_through, credit=self.credit())
        self.tell(trajectory_pb2.UploadResponse(ack=ack))

    def hold(self, reason: int, *, active: bool, until_version: int = 0, behavior_index: int = 0) -> None:
        """Starts or ends a hold."""
        hold = trajectory_pb2.Hold(
            behavior_index=behavior_index,
            reason=trajectory_pb2.HoldReason.ValueType(reason),
            active=active,
            until_version=until_version,
        )
        self.tell(trajectory_pb2.UploadResponse(hold=hold))

    def drain(self, *, final: bool, retry_after_ms: int = 0) -> None:
        """Announces that it is about to stop."""
        drain = trajectory_pb2.Drain(final=final, retry_after_ms=retry_after_ms, message="as the test says")
        self.tell(trajectory_pb2.UploadResponse(drain=drain))

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Sends an assignment to all actors, present and future."""
        self.assignment = assignment
        self._put(self.subscribers, [policy_pb2.SubscribeResponse(assignment=assignment)])

    def publish(
        self,
        behavior: str,
        version: int,
        *,
        payload: bytes | None = None,
        corrupt: bool = False,
        described: PolicyDescription | None = None,
        most_frames: int | None = None,
    ) -> None:
        """Broadcasts a policy; a corrupt one has other bytes than its header says, and `most_frames` leaves out its end."""
        payload = payload if payload is not None else f"{behavior} {version}".encode()
        header = self._describe(behavior, version, payload, described)
        sent = bytes(len(payload)) if corrupt else payload
        messages = [policy_pb2.SubscribeResponse(header=header.to_message())]
        if self.inlines:
            messages[0].header.data = sent
        else:
            messages += [policy_pb2.SubscribeResponse(frame=frame) for frame in frames(sent)[:most_frames]]
        self.newest[behavior] = messages
        self._put(self.subscribers, messages)

    def _describe(
        self, behavior: str, version: int, payload: bytes, described: PolicyDescription | None
    ) -> PolicyDescription:
        index = self.indices[behavior]
        described = described or policy_description(behavior, 0, 0, 0)
        numbered = replace(described, behavior_index=index, generation=self.generation, version=version)
        return describe_payload(numbered, payload)

    def keep(
        self, behavior: str, version: int, payload: bytes, described: PolicyDescription | None = None
    ) -> PolicyDescription:
        """Keeps a version without broadcasting it, and returns its description."""
        description = self._describe(behavior, version, payload, described)
        messages = [policy_pb2.GetPolicyResponse(header=description.to_message())]
        self.kept[behavior, version] = messages + [policy_pb2.GetPolicyResponse(frame=f) for f in frames(payload)]
        return description

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Waits for something to become true."""
        wait_until(condition)


def policy_description(behavior: str, index: int, generation: int, version: int) -> PolicyDescription:
    """Returns a valid description of a policy with one observation and one branch."""
    return PolicyDescription(
        behavior_index=index,
        behavior=behavior,
        generation=generation,
        version=version,
        architecture_hash=bytes(32),
        inputs=("obs_0",),
        outputs=("logits",),
        discrete_distribution=Distribution.CATEGORICAL,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Waits for something to become true.

    Raises:
        AssertionError: It did not, by far.
    """
    patience = threading.Event()
    for _ in range(int(DEAD_SECONDS / 0.005)):
        if condition():
            return
        patience.wait(0.005)
    raise AssertionError("waited in vain")
