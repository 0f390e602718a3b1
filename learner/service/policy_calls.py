"""PolicyService: versions and assignments, from the learner to actors; see policy.proto."""

from __future__ import annotations

from typing import Final

import grpc
from rollcast.errors import UnknownBehavior
from rollcast.v1 import policy_pb2

from learner.ingest.behaviors import BehaviorTable
from learner.ingest.sessions import SessionTable
from learner.observe.metrics.learner import PolicyMetrics
from learner.publish.broadcast import Broadcast
from learner.publish.store import PolicyStore
from learner.service.hub import Hub
from learner.service.methods import BytesContext, Handlers, unary_stream

NAME: Final = policy_pb2.DESCRIPTOR.services_by_name["PolicyService"].full_name


class PolicyService:
    """Sends each subscriber the newest versions, and anybody a pinned one."""

    def __init__(
        self,
        hub: Hub,
        sessions: SessionTable,
        behaviors: BehaviorTable,
        store: PolicyStore,
        broadcast: Broadcast,
        *,
        metrics: PolicyMetrics,
    ) -> None:
        self._metrics = metrics
        self._hub = hub
        self._sessions = sessions
        self._behaviors = behaviors
        self._store = store
        self._broadcast = broadcast

    def handlers(self) -> Handlers:
        """Returns the methods."""
        return {
            "Subscribe": unary_stream(policy_pb2.SubscribeRequest, self.subscribe),
            "GetPolicy": unary_stream(policy_pb2.GetPolicyRequest, self.get_policy),
        }

    async def subscribe(self, request: policy_pb2.SubscribeRequest, context: BytesContext) -> None:
        """Sends policies and assignments until the session ends."""
        self._hub.check_admission()
        session = self._sessions.get(request.session_id, request.epoch)
        held = {policy.behavior_index: (policy.generation, policy.version) for policy in request.held}
        subscription = self._hub.subscribe(session, held)
        try:
            while (messages := await subscription.take()) is not None:
                await self._send(messages, context)
        finally:
            self._hub.unsubscribe(session, subscription)

    async def get_policy(self, request: policy_pb2.GetPolicyRequest, context: BytesContext) -> None:
        """Sends one version."""
        self._sessions.find(request.session_id)
        behavior = self._behaviors.by_name(request.behavior)
        if behavior is None:
            raise UnknownBehavior(
                f"nobody declared a behavior {request.behavior[:128]!r} in this run",
                code=grpc.StatusCode.NOT_FOUND,
                metadata={"behavior": request.behavior[:128]},
            )
        encoded = await self._broadcast.encoded(self._store.get(behavior.name, request.generation, request.version))
        # Header and frame have the same numbers in GetPolicyResponse as in SubscribeResponse.
        await self._send(encoded.messages, context)

    async def _send(self, messages: tuple[bytes, ...], context: BytesContext) -> None:
        outcome = "aborted"
        try:
            for message in messages:
                await context.write(message)
                self._metrics.sent_bytes.inc(len(message))
            outcome = "ok"
        finally:
            if len(messages) > 1:  # a policy has a header and frames; an assignment is one message
                self._metrics.sends[outcome].inc()
