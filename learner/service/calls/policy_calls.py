"""PolicyService: sends versions and assignments to actors; see policy.proto."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Final

import grpc
from rollcast.errors import BadRequest, TooManyCalls, TooSlow, UnknownBehavior, VersionEvicted
from rollcast.limits import SHA256_BYTES
from rollcast.v1 import policy_pb2

from learner.service.calls.form_faults import FormFaults
from learner.service.calls.methods import BOUND, BytesContext, Handlers, check_entries, unary_stream
from learner.service.calls.session_router import SessionRouter
from learner.service.identity.access import CALLER, check_behavior
from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.session import ActorSession
from learner.service.ingest.session_ids import short_id
from learner.service.ingest.sessions import SessionTable
from learner.service.metrics.learner import PolicyMetrics
from learner.service.policies.broadcast import ASSIGNMENT, Broadcast
from learner.service.policies.store import PolicyStore
from learner.shared.policies import PolicyKey, StoredPolicy
from learner.shared.runfolder.snapshots import SnapshotFiles

NAME: Final = policy_pb2.DESCRIPTOR.services_by_name["PolicyService"].full_name

MAX_FETCHES: Final = 8
"""Policies that one session may fetch at once; an actor keeps eight for its opponents."""
RETRY_SECONDS: Final = 1.0
WRITE_SECONDS: Final = 60.0
"""Time for a client to take one message. A client that takes none would keep its version in memory."""


class PolicyService:
    """Sends each subscriber the newest versions, and any caller a pinned one."""

    def __init__(
        self,
        router: SessionRouter,
        sessions: SessionTable,
        behaviors: BehaviorTable,
        store: PolicyStore,
        broadcast: Broadcast,
        *,
        metrics: PolicyMetrics,
        faults: FormFaults,
        snapshots: SnapshotFiles | None = None,
    ) -> None:
        self._faults = faults
        self._snapshots = snapshots
        self._metrics = metrics
        self._router = router
        self._sessions = sessions
        self._behaviors = behaviors
        self._store = store
        self._broadcast = broadcast
        self._fetches: Counter[str] = Counter()

    def handlers(self) -> Handlers:
        """Returns the handlers of the methods."""
        return {
            "Subscribe": unary_stream(policy_pb2.SubscribeRequest, self.subscribe),
            "GetPolicy": unary_stream(policy_pb2.GetPolicyRequest, self.get_policy),
        }

    async def subscribe(self, request: policy_pb2.SubscribeRequest, context: BytesContext) -> None:
        """Sends policies and assignments until the session ends."""
        self._router.check_admission()
        session = self._sessions.get(request.session_id, request.epoch, CALLER.get().name)
        with self._faults.of(session):
            check_entries(request.held, "policies held")
        held = {policy.behavior_index: (policy.generation, policy.version) for policy in request.held}
        subscription = self._router.subscribe(session, held, inline_bytes=request.inline_bytes)
        try:
            while (taken := await subscription.take()) is not None:
                slot, messages = taken
                await self._send(messages, context, is_policy=slot != ASSIGNMENT)
        finally:
            self._router.unsubscribe(session, subscription)

    async def get_policy(self, request: policy_pb2.GetPolicyRequest, context: BytesContext) -> None:
        """Sends one version."""
        caller = CALLER.get()
        session = self._sessions.find(request.session_id, caller.name)
        check_behavior(caller, request.behavior[:128])
        self._check_fetches(session)
        self._fetches[session.session_id] += 1
        try:
            with self._faults.of(session):
                messages = await self._pinned(request)
            await self._send(messages, context, is_policy=True)
        finally:
            self._fetches[session.session_id] -= 1
            if not self._fetches[session.session_id]:
                del self._fetches[session.session_id]

    def _check_fetches(self, session: ActorSession) -> None:
        if self._fetches[session.session_id] >= MAX_FETCHES:
            raise TooManyCalls(
                f"session {short_id(session.session_id)} already fetches {MAX_FETCHES} policies: wait for one of them",
                retry_after_seconds=RETRY_SECONDS,
                metadata={BOUND: "calls"},
            )

    async def _pinned(self, request: policy_pb2.GetPolicyRequest) -> tuple[bytes, ...]:
        """Returns the messages of one version. Header and frame have the same field numbers as in a subscription."""
        behavior = self._behaviors.by_name(request.behavior)
        if behavior is None:
            raise UnknownBehavior(
                f"behavior {request.behavior[:128]!r} is not declared in this run",
                code=grpc.StatusCode.NOT_FOUND,
                metadata={"behavior": request.behavior[:128]},
            )
        key = PolicyKey(request.generation, request.version, request.sha256)
        found = await self._exact(behavior, key) if request.sha256 else None
        encoded = await self._broadcast.encoded(
            found or self._store.get(behavior.name, request.generation, request.version)
        )
        return encoded.messages

    async def _exact(self, behavior: Behavior, key: PolicyKey) -> StoredPolicy:
        """Returns the version with exactly this key, from memory or from its file.

        Raises:
            BadRequest: The digest is not a SHA-256.
            VersionEvicted: There is no such version.
        """
        if len(key.sha256) != SHA256_BYTES:
            raise BadRequest(
                f"sha256 has {len(key.sha256)} bytes; it must have {SHA256_BYTES}, or be empty",
                metadata={"field": "sha256"},
            )
        found = self._store.find(behavior.name, key)
        if found is None and self._snapshots is not None:
            found = await asyncio.to_thread(self._snapshots.read, behavior.name, key)
        if found is None:
            raise VersionEvicted(
                f"version {key.version} of {behavior.name}, generation {key.generation}, with SHA-256 {key.sha256.hex()} "
                "is not kept",
                metadata={
                    "behavior": behavior.name,
                    "version": str(key.version),
                    "generation": str(key.generation),
                    "sha256": key.sha256.hex(),
                },
            )
        return replace(found, description=replace(found.description, behavior_index=behavior.index))

    async def _send(self, messages: tuple[bytes, ...], context: BytesContext, *, is_policy: bool) -> None:
        outcome = "aborted"
        try:
            for message in messages:
                async with asyncio.timeout(WRITE_SECONDS):
                    await context.write(message)
                self._metrics.sent_bytes.inc(len(message))
            outcome = "ok"
        except TimeoutError:
            raise TooSlow(f"the client took no message for {WRITE_SECONDS:g} s", metadata={BOUND: "slow"}) from None
        finally:
            if is_policy:
                self._metrics.sends[outcome].inc()
