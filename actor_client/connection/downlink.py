"""The policy subscription: bytes in, checked, loaded beside the loop, and laid out for the stepping thread. Stop 12."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeAlias

import grpc
import structlog
from rollcast.errors import PolicyCorrupt, WireError
from rollcast.policies import PolicyAssembler, PolicyDescription
from rollcast.specs import BehaviorSpec
from rollcast.v1 import policy_pb2

from actor_client.connection.backoff import Backoff
from actor_client.connection.behavior import Behavior
from actor_client.connection.endpoint import Endpoint, wire_errors
from actor_client.connection.hub import Hub
from actor_client.connection.tasks import first_of
from actor_client.connection.verdicts import one_line
from actor_client.policy.actions import ActingPolicy

LoadPolicy: TypeAlias = Callable[[PolicyDescription, bytes, BehaviorSpec], ActingPolicy]


class _Arrived(NamedTuple):
    """A policy that was received whole and is not loaded yet; `began_at` is when its header came."""

    description: PolicyDescription
    payload: bytes
    began_at: float


class Downlink:
    """One subscription of the session. The newest version wins; one that cannot be used is reported, the old one stays.

    Args:
        hub: The state of the connection.
        endpoint: Where from.
        load: Makes a policy from verified bytes, and raises if it cannot be used.
        workers: Where to verify and load; at least two threads, so that reading goes on during a load.
    """

    def __init__(self, hub: Hub, endpoint: Endpoint, load: LoadPolicy, workers: Executor) -> None:
        self._hub = hub
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
            WireError: The subscription ended.
        """
        await first_of(self._receive_all(), self._load_all())

    async def _receive_all(self) -> None:
        """Subscribes, and anew after a damaged policy: the learner then sends its newest again."""
        while True:
            try:
                await self._subscribe()
            except PolicyCorrupt as error:
                await asyncio.sleep(self._backoff.failed(error.retry_after_seconds))

    async def _subscribe(self) -> None:
        """Puts policies together as they come.

        Raises:
            PolicyCorrupt: One was not what its header says; it has been reported.
            WireError: The subscription ended.
        """
        session = self._hub.session
        request = policy_pb2.SubscribeRequest(session_id=session.session_id, epoch=session.epoch, held=self._held())
        call = self._endpoint.policies.Subscribe(request)
        assembler = PolicyAssembler()
        index = 0
        self._hub.subscribed = True
        try:
            with wire_errors():
                async for message in call:
                    kind = message.WhichOneof("message")
                    if kind == "header":
                        index = message.header.behavior_index
                        self._began_at = time.monotonic()
                        assembler.begin(message.header)
                    elif kind == "frame":
                        await self._add(assembler, message.frame)
                    elif kind == "assignment":
                        self._hub.assign(message.assignment)
            raise WireError("the learner ended the subscription", code=grpc.StatusCode.UNAVAILABLE)
        except PolicyCorrupt as error:
            self._hub.counts.policies_bad += 1
            self._refuse(index, error.message)
            raise
        finally:
            self._hub.subscribed = False
            call.cancel()

    def _held(self) -> list[policy_pb2.HeldPolicy]:
        """Returns the policies that need not be sent again."""
        return [
            policy_pb2.HeldPolicy(
                behavior_index=behavior.index, generation=behavior.newest.generation, version=behavior.newest.version
            )
            for behavior in self._hub.behaviors.values()
            if behavior.newest is not None and behavior.index >= 0
        ]

    async def _add(self, assembler: PolicyAssembler, frame: policy_pb2.PolicyFrame) -> None:
        """Takes a frame; verifying the whole after the last one takes long, and so happens beside the loop."""
        complete = await asyncio.get_running_loop().run_in_executor(self._workers, assembler.add, frame)
        if complete is not None:
            description, payload = complete
            if description.behavior_index in self._arrived:
                self._hub.counts.policies_superseded += 1
            self._arrived[description.behavior_index] = _Arrived(description, payload, self._began_at)
            self._hub.loadable.set()

    async def _load_all(self) -> None:
        """Loads what came, the newest of each behavior, as soon as the behavior has a number here, too."""
        while True:
            await self._hub.loadable.wait()
            self._hub.loadable.clear()
            for index in list(self._arrived):
                behavior = self._hub.by_index(index)
                if behavior is not None:
                    await self._load_one(behavior, self._arrived.pop(index))

    async def _load_one(self, behavior: Behavior, arrived: _Arrived) -> None:
        """Loads one policy and makes it the newest, or reports why not."""
        newest, description = behavior.newest, arrived.description
        if description.generation != self._hub.session.generation:
            self._log.debug("policy_of_other_generation", generation=description.generation)
            return
        if newest is not None and newest.generation == description.generation and newest.version >= description.version:
            return
        if description.behavior != behavior.name:
            self._refuse(description.behavior_index, f"it is for behavior {description.behavior!r}")
            return
        loop = asyncio.get_running_loop()
        try:
            policy = await loop.run_in_executor(self._workers, self._load, description, arrived.payload, behavior.spec)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's bytes cause, the old policy goes on acting
            self._hub.counts.policies_unusable += 1
            self._refuse(description.behavior_index, f"version {description.version}: {error}")
            return
        self._hub.counts.policies_superseded += behavior.has_untaken_policy
        self._hub.counts.policy_fetch_seconds.add(time.monotonic() - arrived.began_at)
        behavior.newest = policy
        behavior.policy_error = ""
        self._backoff.healthy()
        self._hub.changed.set()
        self._log.debug("policy_loaded", behavior=behavior.name, version=policy.version, generation=policy.generation)

    def _refuse(self, index: int, why: str) -> None:
        """Reports a policy that cannot be used, at once; the old one stays."""
        behavior = self._hub.by_index(index)
        why = one_line(why)
        if behavior is not None:
            behavior.policy_error = why
            self._hub.renew_now.set()
        if (left_out := self._hub.notices.due("policy_refused")) is not None:
            name = behavior.name if behavior is not None else f"number {index}"
            self._log.warning("policy_refused", behavior=name, reason=why, left_out=left_out)
