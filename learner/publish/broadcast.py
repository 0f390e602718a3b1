"""Stop 11 of a step's way: one encoding per version, latest wins, to every subscriber.

A version is serialized once, into the messages of a subscription; all subscribers send the same bytes objects. Each
subscriber has one waiting slot a behavior: a newer version replaces what waits there, and never what is being sent, or a
slow subscriber would not complete one. So a slow subscriber costs no memory beyond the version it is sending.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rollcast.limits import FRAME_BYTES, MIB
from rollcast.policies import PolicyDescription
from rollcast.v1 import policy_pb2

from learner.link.policies import StoredPolicy
from learner.publish.store import PolicyStore

ENCODE_INLINE_BYTES: Final = 2 * MIB
"""Larger policies are encoded outside the event loop: copying them takes more than about a millisecond."""

ASSIGNMENT: Final = "assignment"
"""Key of the waiting slot for assignments; behaviors have their index."""

SlotKey = int | str


@dataclass(frozen=True, slots=True)
class EncodedPolicy:
    """One version, ready to send.

    Attributes:
        description: its header.
        messages: serialized SubscribeResponse messages: the header, then the frames. `header` and `frame` have the
            same numbers in GetPolicyResponse, so the same bytes answer GetPolicy.
    """

    description: PolicyDescription
    messages: tuple[bytes, ...]


def encode(policy: StoredPolicy) -> EncodedPolicy:
    """Serializes a version."""
    return EncodedPolicy(policy.description, tuple(_messages(policy)))


def _messages(policy: StoredPolicy) -> Iterator[bytes]:
    yield policy_pb2.SubscribeResponse(header=policy.description.to_message()).SerializeToString()
    for offset in range(0, len(policy.payload), FRAME_BYTES):
        # One frame after the other, so that no second copy of a large policy is alive as a whole.
        frame = policy_pb2.PolicyFrame(offset=offset, data=policy.payload[offset : offset + FRAME_BYTES])
        yield policy_pb2.SubscribeResponse(frame=frame).SerializeToString()


class Subscription:
    """What waits to be sent to one subscriber. For the event loop alone.

    Args:
        held: generation and version of the policies that the subscriber has, by behavior index.
        on_replaced: called when a newer version takes the place of one that waits.
    """

    def __init__(self, held: Mapping[int, tuple[int, int]], on_replaced: Callable[[], object] | None = None) -> None:
        self.behaviors: set[int] = set()
        self._on_replaced = on_replaced
        self._held = dict(held)
        self._waiting: dict[SlotKey, tuple[bytes, ...]] = {}
        self._changed = asyncio.Event()
        self._is_ended = False
        self._error: Exception | None = None

    @property
    def waiting(self) -> int:
        """How many slots are in use."""
        return len(self._waiting)

    def offer(self, policy: EncodedPolicy) -> None:
        """Puts a version into the slot of its behavior, unless the subscriber has it (or a newer one) already."""
        index = policy.description.behavior_index
        version = (policy.description.generation, policy.description.version)
        if index not in self.behaviors or self._held.get(index, (-1, -1)) >= version:
            return
        self._held[index] = version
        self.put(index, policy.messages)

    def put(self, key: SlotKey, messages: tuple[bytes, ...]) -> None:
        """Puts messages into a slot; what waited there is forgotten."""
        if key in self._waiting and key != ASSIGNMENT and self._on_replaced is not None:
            self._on_replaced()
        self._waiting[key] = messages
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Ends the subscription: `take` returns None, or raises the error."""
        if not self._is_ended:
            self._is_ended, self._error = True, error
            self._changed.set()

    async def take(self) -> tuple[bytes, ...] | None:
        """Waits for messages to send; they are to be sent all. None: the subscription is over.

        Raises:
            Exception: the one it was ended with.
        """
        while True:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return None
            if self._waiting:
                return self._waiting.pop(next(iter(self._waiting)))
            self._changed.clear()
            await self._changed.wait()


class Broadcast:
    """Brings each new version from the store to every subscription. For the event loop alone.

    Args:
        store: where versions come from.
        on_replaced: called for each version that a subscriber did not get because a newer one came first.
    """

    def __init__(self, store: PolicyStore, on_replaced: Callable[[], object] | None = None) -> None:
        self._on_replaced = on_replaced
        self._store = store
        self._newest: dict[str, EncodedPolicy] = {}
        self._encoding: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: set[Subscription] = set()

    @property
    def subscribers(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions)

    def subscribe(self, behaviors: Iterable[int], held: Mapping[int, tuple[int, int]]) -> Subscription:
        """Begins a subscription: the newest version of each behavior waits in it already.

        Args:
            behaviors: indices of the behaviors that the subscriber declared.
            held: generation and version of what it has, by behavior index, so that nothing is sent twice.
        """
        subscription = Subscription(held, self._on_replaced)
        self._subscriptions.add(subscription)
        for index in behaviors:
            self.add_behavior(subscription, index)
        return subscription

    def add_behavior(self, subscription: Subscription, behavior_index: int) -> None:
        """Adds a behavior that the subscriber declared later."""
        subscription.behaviors.add(behavior_index)
        for policy in self._newest.values():
            subscription.offer(policy)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Forgets a subscription."""
        self._subscriptions.discard(subscription)

    def refresh(self) -> None:
        """Looks for new versions in the store; small ones are on their way when this returns."""
        for name in self._store.behaviors():
            policy = self._store.latest(name)
            if policy is None or name in self._encoding or not self._is_news(policy):
                continue
            if len(policy.payload) <= ENCODE_INLINE_BYTES:
                self._announce(encode(policy))
            else:
                self._encoding[name] = asyncio.create_task(self._encode_apart(name, policy))

    async def encoded(self, policy: StoredPolicy) -> EncodedPolicy:
        """Returns the encoding of any version: the one at hand, or a new one."""
        newest = self._newest.get(policy.description.behavior)
        if newest is not None and newest.description == policy.description:
            return newest
        if len(policy.payload) <= ENCODE_INLINE_BYTES:
            return encode(policy)
        return await asyncio.to_thread(encode, policy)

    async def stop(self) -> None:
        """Waits for encodings that are under way."""
        await asyncio.gather(*self._encoding.values(), return_exceptions=True)

    def _is_news(self, policy: StoredPolicy) -> bool:
        newest = self._newest.get(policy.description.behavior)
        return newest is None or newest.description != policy.description

    def _announce(self, policy: EncodedPolicy) -> None:
        self._newest[policy.description.behavior] = policy
        for subscription in self._subscriptions:
            subscription.offer(policy)

    async def _encode_apart(self, name: str, policy: StoredPolicy) -> None:
        try:
            self._announce(await asyncio.to_thread(encode, policy))
        finally:
            del self._encoding[name]
        self.refresh()  # a newer version may have come meanwhile
