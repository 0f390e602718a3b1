"""Stop 12 of a step's path: receives, checks and loads policies in worker threads for the stepping thread.

The subscription delivers the newest version of each behavior. A pinned version is fetched when the stepping thread asks
for it.
"""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeAlias

import grpc
import structlog
from rollcast.errors import PolicyCorrupt, WireError
from rollcast.limits import INLINE_BYTES
from rollcast.policies import PolicyAssembler, PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.connection.backoff import Backoff
from actor_client.connection.behavior import Behavior
from actor_client.connection.declarations import Declarations
from actor_client.connection.endpoint import FIRST_ANSWER_SECONDS, Endpoint, first_of, wire_errors
from actor_client.connection.errors import one_line
from actor_client.connection.pins import Pin
from actor_client.connection.state import ConnectionState
from actor_client.policy.actions import ActingPolicy

LoadPolicy: TypeAlias = Callable[[PolicyDescription, bytes, BehaviorSpec], ActingPolicy]


FETCH_SECONDS = 60.0
"""Time limit for fetching a pinned policy."""

_NOT_HELD = frozenset({"VERSION_EVICTED", "UNKNOWN_BEHAVIOR"})


class PolicyUnavailable(Exception):  # noqa: N818 - says what the policy is, like the classes of rollcast.errors
    """The learner no longer holds a version, or the received policy cannot be used."""


class _Arrived(NamedTuple):
    """A received policy that is not loaded yet; `began_at` is the arrival time of its header."""

    description: PolicyDescription
    payload: bytes
    began_at: float


class Downlink:
    """The policies of one connection. The newest usable version acts; an unusable one is reported.

    Args:
        state: The state of the connection.
        declarations: The behaviors of the actor.
        endpoint: The endpoint of the connection.
        load: Makes a policy from verified bytes, and raises if it cannot be used.
        workers: Workers that verify and load; at least two threads, so that reading continues during a load.
    """

    def __init__(
        self,
        state: ConnectionState,
        declarations: Declarations,
        endpoint: Endpoint,
        load: LoadPolicy,
        workers: Executor,
    ) -> None:
        self._state = state
        self._declarations = declarations
        self._endpoint = endpoint
        self._load = load
        self._workers = workers
        self._arrived: dict[int, _Arrived] = {}
        self._began_at = 0.0
        self._backoff = Backoff()
        self._log = structlog.get_logger()

    async def run(self) -> None:
        """Receives and loads until cancelled.

        Raises:
            WireError: The subscription ended, or the connection broke.
        """
        await first_of(self._receive_all(), self._load_all(), self._fetch_pinned())

    async def _receive_all(self) -> None:
        """Subscribes, and again after a damaged policy; the learner then sends its newest."""
        while True:
            try:
                await self._subscribe()
            except PolicyCorrupt as error:
                await asyncio.sleep(self._backoff.failed(error.retry_after_seconds))

    async def _subscribe(self) -> None:
        """Assembles policies from the subscription.

        Raises:
            PolicyCorrupt: A policy did not match its header; it has been reported.
            WireError: The subscription ended.
        """
        session = self._state.session
        request = policy_pb2.SubscribeRequest(
            session_id=session.session_id, epoch=session.epoch, held=self._held(), inline_bytes=INLINE_BYTES
        )
        call = self._endpoint.policies.Subscribe(request, metadata=self._endpoint.metadata)
        assembler = PolicyAssembler()
        index = 0
        self._state.subscribed = True
        try:
            with wire_errors("Subscribe", FIRST_ANSWER_SECONDS):
                while isinstance(message := await self._next(call, assembler), policy_pb2.SubscribeResponse):
                    kind = message.WhichOneof("message")
                    if kind == "header":
                        index = message.header.behavior_index
                        self._began_at = time.monotonic()
                        assembler.begin(message.header)
                        if message.header.data:
                            await self._add(assembler, policy_pb2.PolicyFrame(data=message.header.data))
                    elif kind == "frame":
                        await self._add(assembler, message.frame)
                    elif kind == "assignment":
                        self._state.assign(message.assignment)
            raise WireError("the learner ended the subscription", code=grpc.StatusCode.UNAVAILABLE)
        except PolicyCorrupt as error:
            self._state.counts.policies_bad += 1
            self._refuse(index, error.message)
            raise
        finally:
            self._state.subscribed = False
            call.cancel()

    async def _next(
        self,
        call: "grpc.aio.UnaryStreamCall[policy_pb2.SubscribeRequest, policy_pb2.SubscribeResponse]",
        assembler: PolicyAssembler,
    ) -> object:
        """Returns the next message, or gRPC's end of the stream. Between policies it may take any time; within one, a silence is a fault.

        Raises:
            PolicyCorrupt: The policy stopped halfway, although the connection stands.
        """
        begun = assembler.description
        try:
            async with asyncio.timeout(None if begun is None else FETCH_SECONDS):
                return await call.read()
        except TimeoutError:
            version = "?" if begun is None else begun.version
            raise PolicyCorrupt(
                f"version {version}: its next bytes did not come within {FETCH_SECONDS:.3g} s"
            ) from None

    def _held(self) -> list[policy_pb2.HeldPolicy]:
        """Returns the policies that need not be sent again."""
        return [
            policy_pb2.HeldPolicy(
                behavior_index=behavior.index, generation=behavior.newest.generation, version=behavior.newest.version
            )
            for behavior in self._declarations.numbered()
            if behavior.newest is not None
        ]

    async def _add(self, assembler: PolicyAssembler, frame: policy_pb2.PolicyFrame) -> None:
        """Adds a frame; after the last one, a worker verifies the policy, which is slow."""
        complete = await asyncio.get_running_loop().run_in_executor(self._workers, assembler.add, frame)
        if complete is not None:
            description, payload = complete
            if description.behavior_index in self._arrived:
                self._state.counts.policies_superseded += 1
            self._arrived[description.behavior_index] = _Arrived(description, payload, self._began_at)
            self._state.loadable.set()

    async def _load_all(self) -> None:
        """Loads the newest received policy of each behavior, once the behavior has a number."""
        while True:
            await self._state.loadable.wait()
            self._state.loadable.clear()
            for index in list(self._arrived):
                behavior = self._declarations.by_index(index)
                if behavior is not None:
                    await self._load_one(behavior, self._arrived.pop(index))

    async def _load_one(self, behavior: Behavior, arrived: _Arrived) -> None:
        """Loads one policy and makes it the newest, or reports why it cannot be used."""
        newest, description = behavior.newest, arrived.description
        if description.generation != self._state.session.generation:
            self._log.debug("policy_of_other_generation", generation=description.generation)
            return
        if newest is not None and newest.generation == description.generation and newest.version >= description.version:
            return
        if description.behavior != behavior.name:
            self._refuse(description.behavior_index, f"it is for behavior {description.behavior!r}")
            return
        try:
            policy = await self._loaded(description, arrived.payload, behavior.spec)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's bytes cause, the old policy keeps acting
            self._state.counts.policies_unusable += 1
            self._refuse(description.behavior_index, f"version {description.version}: {error}")
            return
        self._state.counts.policies_superseded += behavior.has_untaken_policy
        self._state.counts.policy_fetch_seconds.add(time.monotonic() - arrived.began_at)
        behavior.newest = policy
        behavior.policy_error = ""
        self._backoff.healthy()
        self._state.changed.set()
        self._log.debug("policy_loaded", behavior=behavior.name, version=policy.version, generation=policy.generation)

    async def _loaded(self, description: PolicyDescription, payload: bytes, spec: BehaviorSpec) -> ActingPolicy:
        """Returns a policy loaded in a worker thread."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, self._load, description, payload, spec)

    def _refuse(self, index: int, why: str) -> None:
        """Reports an unusable policy immediately; the old one stays."""
        behavior = self._declarations.by_index(index)
        why = one_line(why)
        if behavior is not None:
            behavior.policy_error = why
            self._state.renew_now.set()
        if (left_out := self._state.notices.admit("policy_refused")) is not None:
            name = behavior.name if behavior is not None else f"number {index}"
            self._log.warning("policy_refused", behavior=name, reason=why, left_out=left_out)

    async def _fetch_pinned(self) -> None:
        """Fetches pinned versions until cancelled; begins with fetches that a broken connection interrupted.

        Raises:
            WireError: The connection broke.
        """
        while True:
            self._state.pinned.clear()
            for behavior in list(self._declarations.behaviors.values()):
                for pin in behavior.pins.open():
                    await self._settle(behavior, pin)
            await self._state.pinned.wait()

    async def _settle(self, behavior: Behavior, pin: Pin) -> None:
        try:
            pin.policy = await self._fetch(behavior, pin)
        except PolicyUnavailable as error:
            behavior.pins.note_failed(pin)
            self._log.warning(
                "pinned_policy_unavailable",
                behavior=behavior.name,
                version=pin.key.version,
                reason=one_line(str(error)),
                instead="the opponent waits" if pin.key.sha256 else "the newest version acts",
            )
        self._state.changed.set()

    async def _fetch(self, behavior: Behavior, pin: Pin) -> ActingPolicy:
        """Fetches and loads a pinned version.

        Raises:
            PolicyUnavailable: The version is not available.
            WireError: The connection broke.
        """
        request = policy_pb2.GetPolicyRequest(
            session_id=self._state.session.session_id,
            behavior=behavior.name,
            generation=pin.key.generation,
            version=pin.key.version,
            sha256=pin.key.sha256,
        )
        try:
            description, payload = await self._receive(request)
        except PolicyCorrupt as error:
            raise PolicyUnavailable(error.message) from None
        except WireError as error:
            if error.reason in _NOT_HELD or error.code is grpc.StatusCode.UNIMPLEMENTED:
                raise PolicyUnavailable(error.message) from None
            raise
        if pin.key.sha256 not in {b"", description.sha256}:
            raise PolicyUnavailable("the learner sent another policy: the SHA-256 differs from that of the assignment")
        try:
            return await self._loaded(description, payload, behavior.spec)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's bytes cause, another policy acts
            raise PolicyUnavailable(str(error)) from None

    async def _receive(self, request: policy_pb2.GetPolicyRequest) -> tuple[PolicyDescription, bytes]:
        """Requests a policy and assembles the answer.

        Raises:
            PolicyCorrupt: The policy does not match its header, or ends early.
            WireError: The learner did not answer with a policy.
        """
        assembler = PolicyAssembler()
        loop = asyncio.get_running_loop()
        with wire_errors("GetPolicy", FETCH_SECONDS):
            async for message in self._endpoint.policies.GetPolicy(
                request, timeout=FETCH_SECONDS, metadata=self._endpoint.metadata
            ):
                if message.WhichOneof("message") == "header":
                    assembler.begin(message.header)
                    continue
                complete = await loop.run_in_executor(self._workers, assembler.add, message.frame)
                if complete is not None:
                    return complete
        raise PolicyCorrupt("the stream ended before the policy was complete")
