"""Tests that the channel keeps the order and wakes once."""

from __future__ import annotations

from learner.link.channel import Channel


def test_messages_come_in_the_order_in_which_they_were_sent() -> None:
    """Messages of one sender arrive once and in order."""
    channel: Channel[int] = Channel()
    for number in range(5):
        channel.send(number)

    assert channel.receive() == [0, 1, 2, 3, 4]
    assert channel.receive() == []


def test_what_says_everything_takes_the_place_of_what_said_so_before() -> None:
    """A message that replaces earlier ones does not pile up and does not overtake others."""
    channel: Channel[int | str] = Channel(newest=frozenset({str}))
    for message in (1, "a", "b", 2, "c", "d", 3, 4):
        channel.send(message)

    assert channel.receive() == [1, "b", 2, "d", 3, 4]


def test_the_receiver_is_woken_once_until_it_looks() -> None:
    """Sends between two looks cost one wake."""
    channel: Channel[str] = Channel()
    wakes: list[str] = []
    channel.send("before anyone listens")
    channel.connect(lambda: wakes.append("woken"))
    channel.send("second")
    assert wakes == ["woken"]

    assert channel.receive() == ["before anyone listens", "second"]
    channel.send("third")

    assert wakes == ["woken", "woken"]


def test_a_diverted_message_does_not_wait_for_the_receiver() -> None:
    """A diverted message overtakes waiting ones and wakes no receiver."""
    channel: Channel[int | str] = Channel()
    taken: list[str] = []
    woken: list[bool] = []
    channel.divert(str, taken.append)
    channel.connect(lambda: woken.append(True))
    channel.send("at once")
    assert (taken, woken) == (["at once"], [])
    channel.send(1)
    channel.send("before the other is received")
    assert taken == ["at once", "before the other is received"]
    assert channel.receive() == [1]
