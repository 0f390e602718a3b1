"""Pinned versions: policies that need not be the newest ones, fetched one by one when the stepping thread asks."""

import asyncio
from concurrent.futures import Executor

import grpc
import structlog
from rollcast.errors import PolicyCorrupt, WireError
from rollcast.policies import PolicyAssembler, PolicyDescription
from rollcast.v1 import policy_pb2

from actor_client.connection.behavior import Behavior
from actor_client.connection.downlink import LoadPolicy
from actor_client.connection.endpoint import Endpoint, wire_errors
from actor_client.connection.hub import Hub
from actor_client.connection.port import Pin
from actor_client.connection.verdicts import one_line
from actor_client.policy.actions import ActingPolicy

FETCH_SECONDS = 60.0
"""A policy that takes longer will not come."""

_NOT_HELD = frozenset({"VERSION_EVICTED", "UNKNOWN_BEHAVIOR"})

_log = structlog.get_logger(__name__)


class PolicyUnavailable(Exception):  # noqa: N818 - says what the policy is, like the classes of rollcast.errors
    """The learner does not hold a version any more, or what came cannot be used."""


class Pins:
    """Fetches what behaviors have pinned, in one connection.

    Args:
        hub: The state of the connection.
        endpoint: Where from.
        load: Makes a policy from verified bytes.
        workers: Where to verify and load.
    """

    def __init__(self, hub: Hub, endpoint: Endpoint, load: LoadPolicy, workers: Executor) -> None:
        self._hub = hub
        self._endpoint = endpoint
        self._load = load
        self._workers = workers

    async def run(self) -> None:
        """Fetches until cancelled; what a broken connection left open comes first.

        Raises:
            WireError: The connection broke.
        """
        while True:
            self._hub.pinned.clear()
            for behavior in list(self._hub.behaviors.values()):
                pin = behavior.pin
                if pin is not None and pin.policy is None and not pin.is_unavailable:
                    await self._settle(behavior, pin)
            await self._hub.pinned.wait()

    async def _settle(self, behavior: Behavior, pin: Pin) -> None:
        try:
            pin.policy = await self._fetch(behavior, pin)
        except PolicyUnavailable as error:
            pin.is_unavailable = True
            _log.warning(
                "pinned_policy_unavailable",
                behavior=behavior.name,
                version=pin.version,
                reason=one_line(str(error)),
                instead="the newest one acts",
            )
        self._hub.changed.set()

    async def _fetch(self, behavior: Behavior, pin: Pin) -> ActingPolicy:
        """Returns a version.

        Raises:
            PolicyUnavailable: It cannot be had.
            WireError: The connection broke.
        """
        request = policy_pb2.GetPolicyRequest(
            session_id=self._hub.session.session_id,
            behavior=behavior.name,
            generation=pin.generation,
            version=pin.version,
        )
        try:
            description, payload = await self._receive(request)
        except PolicyCorrupt as error:
            raise PolicyUnavailable(error.message) from None
        except WireError as error:
            if error.reason in _NOT_HELD or error.code is grpc.StatusCode.UNIMPLEMENTED:
                raise PolicyUnavailable(error.message) from None
            raise
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._workers, self._load, description, payload, behavior.spec)
        except Exception as error:  # noqa: BLE001 - whatever a stranger's bytes cause, another policy acts
            raise PolicyUnavailable(str(error)) from None

    async def _receive(self, request: policy_pb2.GetPolicyRequest) -> tuple[PolicyDescription, bytes]:
        """Puts the answer together.

        Raises:
            PolicyCorrupt: It is not what its header says, or ends early.
            WireError: There is none.
        """
        assembler = PolicyAssembler()
        loop = asyncio.get_running_loop()
        with wire_errors():
            async for message in self._endpoint.policies.GetPolicy(request, timeout=FETCH_SECONDS):
                if message.WhichOneof("message") == "header":
                    assembler.begin(message.header)
                    continue
                complete = await loop.run_in_executor(self._workers, assembler.add, message.frame)
                if complete is not None:
                    return complete
        raise PolicyCorrupt("the stream ended before the policy was whole")
