"""Tests the broadcast: one encoding per version, one waiting slot per subscriber."""

from __future__ import annotations

import asyncio

import pytest
from rollcast.limits import INLINE_BYTES
from rollcast.policies import PolicyAssembler
from rollcast.v1 import policy_pb2

from learner.service.policies.broadcast import (
    ASSIGNMENT,
    ENCODE_INLINE_BYTES,
    OFFERED_AT_ONCE,
    YIELD,
    Broadcast,
    Subscription,
    encode,
)
from learner.service.policies.store import PolicyStore
from learner.shared.policies import StoredPolicy
from tests.learner.service.calls.harness import eventually
from tests.learner.service.calls.samples import NAME, make_policy


class Published(Broadcast):
    """A broadcast of a store, to which a test publishes."""

    def __init__(self) -> None:
        self.store = PolicyStore()
        super().__init__(self.store)

    def publish(self, policy: StoredPolicy) -> None:
        """Publishes a policy, and offers it to the subscribers."""
        self.store.publish(policy)
        self.refresh()


def versions(messages: tuple[bytes, ...] | None) -> list[int]:
    """Returns the versions of the headers among messages."""
    parsed = [policy_pb2.SubscribeResponse.FromString(message) for message in messages or ()]
    return [message.header.version for message in parsed if message.HasField("header")]


async def next_messages(subscription: Subscription) -> tuple[bytes, ...]:
    """Takes the next messages of a subscription that goes on."""
    taken = await subscription.take()
    assert taken is not None
    return taken[1]


@pytest.mark.parametrize("kind", [policy_pb2.SubscribeResponse, policy_pb2.GetPolicyResponse])
def test_an_encoding_is_complete_in_both_kinds_of_response(
    kind: type[policy_pb2.SubscribeResponse | policy_pb2.GetPolicyResponse],
) -> None:
    """Subscribe and GetPolicy send the same bytes, which reassemble to the payload."""
    policy = make_policy(3, size=2_500_000)
    messages = [kind.FromString(message) for message in encode(policy).messages]
    assembler = PolicyAssembler()
    assembler.begin(messages[0].header)
    results = [assembler.add(message.frame) for message in messages[1:]]
    assert len(results) == 3
    assert results[-1] == (policy.description, policy.payload)


async def test_a_small_version_is_one_message_for_those_who_take_it_so() -> None:
    """A subscriber gets header and bytes in one message up to the size that it names, and up to 64 KiB."""
    broadcast = Published()
    limits = {0: 2, 999: 2, 1000: 1, 2**32 - 1: 1}
    subscriptions = {limit: broadcast.subscribe([0], {}, inline_bytes=limit) for limit in limits}
    broadcast.publish(make_policy(1, size=1000))
    for limit, count in limits.items():
        messages = [policy_pb2.SubscribeResponse.FromString(raw) for raw in await next_messages(subscriptions[limit])]
        assert len(messages) == count, limit
        assert len(messages[0].header.data) == (1000 if count == 1 else 0)
    broadcast.publish(make_policy(2, size=INLINE_BYTES + 1))
    assert len(await next_messages(subscriptions[2**32 - 1])) == 2


async def test_all_subscribers_send_the_same_bytes_objects() -> None:
    """A version is serialized once for all subscribers."""
    broadcast = Published()
    early = [broadcast.subscribe([0], {}) for _ in range(2)]
    broadcast.publish(make_policy(1))
    late = broadcast.subscribe([0], {})
    taken = [await next_messages(subscription) for subscription in (*early, late)]
    assert versions(taken[0]) == [1]
    assert taken[0] is taken[1] is taken[2]
    pinned = await broadcast.encoded(broadcast.store.get(NAME))
    assert pinned.messages is taken[0]


async def test_a_version_is_offered_to_some_subscribers_at_a_time() -> None:
    """Of many subscribers 32 are offered a version at once, the others a moment later, and then the newest."""
    broadcast = Published()
    subscriptions = [broadcast.subscribe([0], {}) for _ in range(3 * OFFERED_AT_ONCE)]
    broadcast.publish(make_policy(1))
    first = [each for each in subscriptions if each.waiting]
    assert len(first) == OFFERED_AT_ONCE
    broadcast.publish(make_policy(2))
    assert sum(each.waiting for each in subscriptions) == OFFERED_AT_ONCE
    gone = next(each for each in subscriptions if not each.waiting)
    broadcast.unsubscribe(gone)
    await eventually(lambda: not any(broadcast._due.values()))
    for each in subscriptions:
        if each is not gone:
            assert versions(await next_messages(each)) == [2]
    assert gone.waiting == 0
    await broadcast.stop()


async def test_offers_yield_to_a_loop_that_is_late() -> None:
    """After a timer that came late, the next subscribers wait three times the delay, so that acks come first."""
    broadcast = Published()
    subscriptions = [broadcast.subscribe([0], {}) for _ in range(3 * OFFERED_AT_ONCE)]

    def offered() -> int:
        return sum(each.waiting for each in subscriptions)

    broadcast.publish(make_policy(1))
    now = asyncio.get_running_loop().time()
    broadcast._pump_due = now - 0.1  # as if the timer had been due then
    await eventually(lambda: offered() == 2 * OFFERED_AT_ONCE)
    assert broadcast._pump_due >= now + YIELD * 0.1
    await eventually(lambda: offered() == 3 * OFFERED_AT_ONCE)
    await broadcast.stop()


@pytest.mark.parametrize("size", [1000, ENCODE_INLINE_BYTES + 1])
async def test_callers_of_one_older_version_share_its_encoding(size: int) -> None:
    """All who fetch a version at the same time are sent the same bytes, which nothing keeps afterwards."""
    broadcast = Published()
    for version in (1, 2):
        broadcast.store.publish(make_policy(version, size=size))
    broadcast.refresh()
    await broadcast.stop()
    found = await asyncio.gather(*(broadcast.encoded(broadcast.store.get(NAME, 1, 1)) for _ in range(3)))
    assert found[0] is found[1] is found[2]
    assert len(broadcast._pinned) == 1
    del found
    await eventually(lambda: not broadcast._pinned)


async def test_only_the_newest_waits() -> None:
    """A subscriber that takes nothing holds one slot per behavior with the newest version."""
    broadcast = Published()
    subscription = broadcast.subscribe([0], {})
    for version in range(20):
        broadcast.publish(make_policy(version))
    assert subscription.waiting == 1
    assert versions(await next_messages(subscription)) == [19]
    assert subscription.waiting == 0


async def test_slots_are_served_in_turn() -> None:
    """Slots are served in turn."""
    subscription = Broadcast(PolicyStore()).subscribe([], {})
    subscription.put(0, (b"a",))
    subscription.put(1, (b"b",))
    subscription.put(0, (b"newer a",))
    assert await subscription.take() == (0, (b"newer a",))
    subscription.put(0, (b"newest a",))
    assert await subscription.take() == (1, (b"b",))
    assert await subscription.take() == (0, (b"newest a",))


async def test_an_assignment_overtakes_the_policies_that_wait() -> None:
    """An actor knows its task before it has a policy to act with: otherwise it takes a step of training in an evaluation."""
    broadcast = Published()
    broadcast.publish(make_policy(1))
    subscription = broadcast.subscribe([0], {})
    subscription.put(ASSIGNMENT, (b"task",))
    assert await subscription.take() == (ASSIGNMENT, (b"task",))
    assert versions(await next_messages(subscription)) == [1]


async def test_a_large_policy_is_encoded_apart_and_the_newest_wins() -> None:
    """A large version is encoded in another thread, and a later version follows it."""
    broadcast = Published()
    subscription = broadcast.subscribe([0], {})
    broadcast.publish(make_policy(1, size=ENCODE_INLINE_BYTES + 1))
    assert subscription.waiting == 0
    broadcast.publish(make_policy(2))
    await eventually(lambda: subscription.waiting == 1 and not broadcast._encoding)
    assert versions(await next_messages(subscription)) == [2]
    await broadcast.stop()


async def test_what_is_held_is_not_offered() -> None:
    """A subscriber gets only newer versions, or any version of a newer generation."""
    broadcast = Published()
    subscription = broadcast.subscribe([0], {0: (1, 4)})
    for version, expected in ((4, 0), (5, 1)):
        broadcast.publish(make_policy(version))
        assert subscription.waiting == expected
    broadcast.publish(make_policy(0, generation=2))
    assert versions(await next_messages(subscription)) == [0]


async def test_a_subscription_that_ends_wakes_its_waiter() -> None:
    """Closing a subscription wakes `take` with None or the error."""
    broadcast = Broadcast(PolicyStore())
    well, badly = broadcast.subscribe([], {}), broadcast.subscribe([], {})
    waiting = [asyncio.create_task(subscription.take()) for subscription in (well, badly)]
    await asyncio.sleep(0)
    well.end()
    badly.end(ValueError("why"))
    badly.end()
    assert await waiting[0] is None
    with pytest.raises(ValueError, match="why"):
        await waiting[1]
    broadcast.unsubscribe(well)
    assert broadcast.subscribers == 1
