"""The broadcast: one encoding a version, one waiting slot a subscriber."""

from __future__ import annotations

import asyncio

import pytest
from rollcast.policies import PolicyAssembler
from rollcast.v1 import policy_pb2

from learner.publish.broadcast import ENCODE_INLINE_BYTES, Broadcast, encode
from learner.publish.store import PolicyStore
from tests.learner.service.harness import async_test, eventually
from tests.learner.service.samples import NAME, make_policy


def versions(messages: tuple[bytes, ...] | None) -> list[int]:
    """Versions of the headers among messages."""
    parsed = [policy_pb2.SubscribeResponse.FromString(message) for message in messages or ()]
    return [message.header.version for message in parsed if message.HasField("header")]


@pytest.mark.parametrize("kind", [policy_pb2.SubscribeResponse, policy_pb2.GetPolicyResponse])
def test_an_encoding_is_complete_in_both_kinds_of_response(
    kind: type[policy_pb2.SubscribeResponse | policy_pb2.GetPolicyResponse],
) -> None:
    """The same bytes are messages of Subscribe and of GetPolicy, and put together give the payload."""
    policy = make_policy(3, size=2_500_000)
    messages = [kind.FromString(message) for message in encode(policy).messages]
    assembler = PolicyAssembler()
    assembler.begin(messages[0].header)
    results = [assembler.add(message.frame) for message in messages[1:]]
    assert len(results) == 3
    assert results[-1] == (policy.description, policy.payload)


@async_test
async def test_all_subscribers_send_the_same_bytes_objects() -> None:
    """A version is serialized once, however many subscribers there are, late ones included."""
    store = PolicyStore()
    broadcast = Broadcast(store)
    early = [broadcast.subscribe([0], {}) for _ in range(2)]
    store.publish(make_policy(1))
    broadcast.refresh()
    late = broadcast.subscribe([0], {})
    taken = [await subscription.take() for subscription in (*early, late)]
    assert versions(taken[0]) == [1]
    assert taken[0] is taken[1] is taken[2]
    pinned = await broadcast.encoded(store.get(NAME))
    assert pinned.messages is taken[0]


@async_test
async def test_only_the_newest_waits() -> None:
    """A subscriber that takes nothing holds one slot a behavior; then it gets the newest version of each."""
    store = PolicyStore()
    broadcast = Broadcast(store)
    subscription = broadcast.subscribe([0], {})
    for version in range(20):
        store.publish(make_policy(version))
        broadcast.refresh()
    assert subscription.waiting == 1
    assert versions(await subscription.take()) == [19]
    assert subscription.waiting == 0


@async_test
async def test_slots_are_served_in_turn() -> None:
    """A behavior that publishes often does not keep another one's policy waiting."""
    subscription = Broadcast(PolicyStore()).subscribe([], {})
    subscription.put(0, (b"a",))
    subscription.put(1, (b"b",))
    subscription.put(0, (b"newer a",))
    assert await subscription.take() == (b"newer a",)
    subscription.put(0, (b"newest a",))
    assert await subscription.take() == (b"b",)
    assert await subscription.take() == (b"newest a",)


@async_test
async def test_a_large_policy_is_encoded_apart_and_the_newest_wins() -> None:
    """Encoding a large version does not hold up the loop; a version that comes meanwhile follows."""
    store = PolicyStore()
    broadcast = Broadcast(store)
    subscription = broadcast.subscribe([0], {})
    store.publish(make_policy(1, size=ENCODE_INLINE_BYTES + 1))
    broadcast.refresh()
    assert subscription.waiting == 0
    store.publish(make_policy(2))
    broadcast.refresh()
    await eventually(lambda: subscription.waiting == 1 and not broadcast._encoding)
    assert versions(await subscription.take()) == [2]
    await broadcast.stop()


@async_test
async def test_what_is_held_is_not_offered() -> None:
    """A subscriber that has version 4 gets 5, and a newer generation whatever its version."""
    store = PolicyStore()
    broadcast = Broadcast(store)
    subscription = broadcast.subscribe([0], {0: (1, 4)})
    for version, expected in ((4, 0), (5, 1)):
        store.publish(make_policy(version))
        broadcast.refresh()
        assert subscription.waiting == expected
    store.publish(make_policy(0, generation=2))
    broadcast.refresh()
    assert versions(await subscription.take()) == [0]


@async_test
async def test_a_subscription_that_ends_wakes_its_waiter() -> None:
    """Who waits in `take` hears of the end: None, or the error."""
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
