"""Stop 11 of a step's path: one encoding per version, latest wins, to every subscriber.

A version is serialized once into the messages of a subscription; all subscribers are sent the same bytes objects. Each
subscriber has one waiting slot per behavior: a newer version replaces the waiting one, but never the one being sent, so
that a slow subscriber can complete it. A slow subscriber therefore takes no memory beyond the version being sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final
from weakref import WeakValueDictionary

from rollcast.limits import FRAME_BYTES, INLINE_BYTES, MIB
from rollcast.policies import PolicyDescription
from rollcast.v1 import policy_pb2

from learner.service.policies.store import PolicyStore
from learner.shared.policies import PolicyKey, StoredPolicy

ENCODE_INLINE_BYTES: Final = 2 * MIB
"""Larger policies are encoded outside the event loop: copying them takes more than about a millisecond."""

OFFERED_AT_ONCE: Final = 32
"""Subscribers that are offered a new version at once; the next ones follow after `OFFER_SECONDS`."""
OFFER_SECONDS: Final = 0.01
YIELD: Final = 3.0
"""The next subscribers wait at least this many times the delay of the last timer: in a loop that is late, acks come first."""

ASSIGNMENT: Final = "assignment"
"""Key of the waiting slot for assignments; behaviors use their index."""

SlotKey = int | str


@dataclass(frozen=True, slots=True, weakref_slot=True)
class EncodedPolicy:
    """One version, ready to send.

    Attributes:
        description: Header of the version.
        messages: Serialized SubscribeResponse messages: the header, then the frames. `header` and `frame` have the
            same numbers in GetPolicyResponse, so the same bytes answer GetPolicy.
        inlined: The one message for subscribers that take so small a version with its header; empty if it is larger.
    """

    description: PolicyDescription
    messages: tuple[bytes, ...]
    inlined: tuple[bytes, ...] = ()

    def messages_for(self, inline_bytes: int) -> tuple[bytes, ...]:
        """Returns the messages for a subscriber that takes up to `inline_bytes` bytes with a header."""
        return self.inlined if self.inlined and self.description.encoded_bytes <= inline_bytes else self.messages


def encode(policy: StoredPolicy) -> EncodedPolicy:
    """Serializes a version."""
    inlined: tuple[bytes, ...] = ()
    if len(policy.payload) <= INLINE_BYTES:
        header = policy.description.to_message()
        header.data = policy.payload
        inlined = (policy_pb2.SubscribeResponse(header=header).SerializeToString(),)
    return EncodedPolicy(policy.description, tuple(_messages(policy)), inlined)


def _messages(policy: StoredPolicy) -> Iterator[bytes]:
    yield policy_pb2.SubscribeResponse(header=policy.description.to_message()).SerializeToString()
    for offset in range(0, len(policy.payload), FRAME_BYTES):
        # One frame at a time, so that no full second copy of a large policy exists.
        frame = policy_pb2.PolicyFrame(offset=offset, data=policy.payload[offset : offset + FRAME_BYTES])
        yield policy_pb2.SubscribeResponse(frame=frame).SerializeToString()


class Subscription:
    """The messages that wait for one subscriber. Use it in the event loop only.

    Args:
        held: Generation and version of the policies that the subscriber has, by behavior index.
        on_replaced: Called when a newer version replaces a waiting one.
        inline_bytes: Largest policy that the subscriber takes in one message with its header.
    """

    def __init__(
        self,
        held: Mapping[int, tuple[int, int]],
        on_replaced: Callable[[], object] | None = None,
        *,
        inline_bytes: int = 0,
    ) -> None:
        self.behaviors: set[int] = set()
        self._inline_bytes = inline_bytes
        self._on_replaced = on_replaced
        self._held = dict(held)
        self._waiting: dict[SlotKey, tuple[bytes, ...]] = {}
        self._changed = asyncio.Event()
        self._is_ended = False
        self._error: Exception | None = None

    @property
    def waiting(self) -> int:
        """Number of used slots."""
        return len(self._waiting)

    def offer(self, policy: EncodedPolicy) -> None:
        """Puts a version into the slot of its behavior, unless the subscriber already has it or a newer one."""
        index = policy.description.behavior_index
        version = (policy.description.generation, policy.description.version)
        if index not in self.behaviors or self._held.get(index, (-1, -1)) >= version:
            return
        self._held[index] = version
        self.put(index, policy.messages_for(self._inline_bytes))

    def put(self, key: SlotKey, messages: tuple[bytes, ...]) -> None:
        """Puts messages into a slot and discards those that waited there."""
        if key in self._waiting and key != ASSIGNMENT and self._on_replaced is not None:
            self._on_replaced()
        self._waiting[key] = messages
        self._changed.set()

    def end(self, error: Exception | None = None) -> None:
        """Ends the subscription: `take` returns None, or raises the error."""
        if not self._is_ended:
            self._is_ended, self._error = True, error
            self._changed.set()

    async def take(self) -> tuple[SlotKey, tuple[bytes, ...]] | None:
        """Waits for a slot with messages, and returns both; the caller must send all. Returns None if the subscription is over.

        Raises:
            Exception: The error with which the subscription was ended.
        """
        while True:
            if self._is_ended:
                if self._error is not None:
                    raise self._error
                return None
            if self._waiting:
                # An assignment first: an actor that has a policy before it knows its task acts for training.
                key = ASSIGNMENT if ASSIGNMENT in self._waiting else next(iter(self._waiting))
                return key, self._waiting.pop(key)
            self._changed.clear()
            await self._changed.wait()


class Broadcast:
    """Distributes each new version from the store to every subscription. Use it in the event loop only.

    Args:
        store: Source of versions.
        on_replaced: Called for each version that a subscriber did not get because a newer one replaced it.
    """

    def __init__(self, store: PolicyStore, on_replaced: Callable[[], object] | None = None) -> None:
        self._on_replaced = on_replaced
        self._store = store
        self._newest: dict[str, EncodedPolicy] = {}
        self._encoding: dict[str, asyncio.Task[None]] = {}
        self._subscriptions: set[Subscription] = set()
        self._due: dict[str, dict[Subscription, None]] = {}
        self._pump: asyncio.TimerHandle | None = None
        self._pump_due = 0.0
        self._pinned: WeakValueDictionary[tuple[str, PolicyKey], EncodedPolicy] = WeakValueDictionary()
        self._pinning: dict[tuple[str, PolicyKey], asyncio.Task[EncodedPolicy]] = {}

    @property
    def subscribers(self) -> int:
        """Number of subscriptions."""
        return len(self._subscriptions)

    def subscribe(
        self, behaviors: Iterable[int], held: Mapping[int, tuple[int, int]], *, inline_bytes: int = 0
    ) -> Subscription:
        """Begins a subscription; the newest version of each behavior already waits in it.

        Args:
            behaviors: Indices of the behaviors that the subscriber declared.
            held: Generation and version that it has, by behavior index, so that nothing is sent twice.
            inline_bytes: Largest policy that it takes in one message with its header.
        """
        subscription = Subscription(held, self._on_replaced, inline_bytes=inline_bytes)
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
        """Removes a subscription."""
        self._subscriptions.discard(subscription)
        for due in self._due.values():
            due.pop(subscription, None)

    def refresh(self) -> None:
        """Checks the store for new versions; small ones are queued when this returns."""
        for name in self._store.behaviors():
            policy = self._store.latest(name)
            if policy is None or name in self._encoding or not self._is_news(policy):
                continue
            if len(policy.payload) <= ENCODE_INLINE_BYTES:
                self._announce(encode(policy))
            else:
                self._encoding[name] = asyncio.create_task(self._encode_apart(name, policy))

    async def encoded(self, policy: StoredPolicy) -> EncodedPolicy:
        """Returns the encoding of any version: the existing one, or a new one, which all callers of the moment share."""
        newest = self._newest.get(policy.description.behavior)
        if newest is not None and newest.description == policy.description:
            return newest
        key = policy.description.behavior, policy.key
        found = self._pinned.get(key)
        if found is not None:
            return found
        if len(policy.payload) <= ENCODE_INLINE_BYTES:
            encoded = self._pinned[key] = encode(policy)
            return encoded
        task = self._pinning.get(key)
        if task is None:
            task = self._pinning[key] = asyncio.create_task(asyncio.to_thread(encode, policy))
            task.add_done_callback(lambda _: self._pinning.pop(key))
        encoded = self._pinned[key] = await asyncio.shield(task)
        return encoded

    async def stop(self) -> None:
        """Waits for running encodings, and offers nothing more."""
        await asyncio.gather(*self._encoding.values(), return_exceptions=True)
        if self._pump is not None:
            self._pump.cancel()

    def _is_news(self, policy: StoredPolicy) -> bool:
        newest = self._newest.get(policy.description.behavior)
        return newest is None or newest.description != policy.description

    def _announce(self, policy: EncodedPolicy) -> None:
        self._newest[policy.description.behavior] = policy
        due = self._due.setdefault(policy.description.behavior, {})
        due.update(dict.fromkeys(self._subscriptions))  # who waits for the version before keeps the place
        if self._pump is None:
            self._offer_some()

    def _offer_some(self) -> None:
        """Offers the newest versions to some subscribers, and later to the next ones.

        Each offer wakes a task that writes megabytes; a thousand at once would hold up acks for a second.
        """
        loop = asyncio.get_running_loop()
        late_seconds = 0.0 if self._pump is None else max(0.0, loop.time() - self._pump_due)
        self._pump = None
        left = OFFERED_AT_ONCE
        for name, due in self._due.items():
            for subscription in list(islice(due, left)):
                del due[subscription]
                subscription.offer(self._newest[name])
                left -= 1
        if any(self._due.values()):
            self._pump_due = loop.time() + max(OFFER_SECONDS, YIELD * late_seconds)
            self._pump = loop.call_at(self._pump_due, self._offer_some)

    async def _encode_apart(self, name: str, policy: StoredPolicy) -> None:
        try:
            self._announce(await asyncio.to_thread(encode, policy))
        finally:
            del self._encoding[name]
        self.refresh()  # a newer version may have arrived meanwhile
