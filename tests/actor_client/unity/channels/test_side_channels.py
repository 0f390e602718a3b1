"""Tests the side channels of one player, in both directions."""

import struct
import threading
from collections.abc import Callable
from uuid import UUID

import pytest
from rollcast.enums import StatAggregation
from rollcast.v1 import policy_pb2, session_pb2
from structlog.testing import capture_logs

from actor_client.unity.channels.framing import pack, string, unpack
from actor_client.unity.channels.records import PARAMETERS_CHANNEL, STATS_CHANNEL, StatRecord
from actor_client.unity.channels.side_channels import MAX_WAITING_BYTES, REPLY_BUDGET_BYTES, SideChannels
from tests.actor_client.unity.channels.recorded import RESET_HEX, STAT_HEX
from tests.actor_client.unity.channels.test_records import RECORDED_ENGINE, recorded_assignment

RAW = UUID("621f0a70-4f87-11ea-a6bf-784f4387d1f7")


class Recording:
    """A plug-in that records its messages, greets each player, and raises on `raise`."""

    channel_id = RAW

    def __init__(self) -> None:
        self.got: list[tuple[int, bytes]] = []
        self.senders: list[Callable[[bytes], None]] = []

    def on_player(self, worker: int, send: Callable[[bytes], None]) -> None:
        """Greets the player."""
        self.senders.append(send)
        send(b"hello %d" % worker)

    def on_message(self, worker: int, data: bytes) -> None:
        """Records the message."""
        self.got.append((worker, data))
        if data == b"raise":
            raise RuntimeError("a fault of the user's")


def stat(key: str, value: float, aggregation: int) -> bytes:
    """Returns one packed statistics record."""
    return pack([(STATS_CHANNEL, string(key) + struct.pack("<fi", value, aggregation))])


def test_a_player_begins_with_parameters_engine_and_greetings() -> None:
    """The first reset has the recorded bytes and the greetings of plug-ins; the second has none."""
    channels = SideChannels(2, [Recording()], first_of_run=False)
    channels.begin(RECORDED_ENGINE, recorded_assignment())
    assert channels.take().hex() == RESET_HEX + pack([(RAW, b"hello 2")]).hex()
    assert channels.take() == b""


def test_parameters_go_out_again_when_they_changed() -> None:
    """A new settings revision is sent whole with the next reply, and only once."""
    channels = SideChannels(0, first_of_run=True)
    assignment = recorded_assignment()
    channels.begin(RECORDED_ENGINE, assignment)
    channels.take()
    channels.update(assignment)
    assert channels.take() == b""
    assignment.settings_revision = 4
    assignment.environment_parameters["mass"].constant = 9.0
    channels.update(assignment)
    sent = unpack(channels.take())
    assert [channel for channel, _ in sent] == [PARAMETERS_CHANNEL] * 4
    assert sent[0][1] == string("mass") + struct.pack("<if", 0, 9.0)
    channels.update(assignment)
    assert channels.take() == b""


def test_a_player_that_begins_anew_gets_nothing_that_was_meant_for_the_one_before() -> None:
    """A restarted player gets no payloads of the previous one, and an old sender has no effect."""
    plugin = Recording()
    channels = SideChannels(0, [plugin], first_of_run=True)
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())
    plugin.senders[0](b"for the first")
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())
    plugin.senders[0](b"too late")
    plugin.senders[1](b"for the second")
    raw = [payload for channel, payload in unpack(channels.take()) if channel == RAW]
    assert raw == [b"hello 0", b"for the second"]


def test_replies_stay_within_their_budget() -> None:
    """Payloads that exceed a reply are spread over several; a payload that exceeds every reply is refused."""
    plugin = Recording()
    channels = SideChannels(0, [plugin], first_of_run=True)
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())
    channels.take()
    for number in range(10):
        plugin.senders[0](bytes([number]) * (REPLY_BUDGET_BYTES // 4))
    with pytest.raises(ValueError, match="a reply has space for"):
        plugin.senders[0](bytes(REPLY_BUDGET_BYTES))
    got = []
    while data := channels.take():
        assert len(data) <= REPLY_BUDGET_BYTES
        got += [payload[0] for _, payload in unpack(data)]
    assert got == list(range(10))


def test_a_plugin_that_sends_without_end_is_stopped_and_not_the_actor() -> None:
    """The waiting payloads of a player are limited, and the plug-in is notified."""
    plugin = Recording()
    channels = SideChannels(0, [plugin], first_of_run=True)
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())
    largest = bytes(REPLY_BUDGET_BYTES // 2)
    for _ in range(MAX_WAITING_BYTES // len(largest)):
        plugin.senders[0](largest)
    with pytest.raises(ValueError, match="messages that wait for player 0 would exceed"):
        plugin.senders[0](largest)
    assert channels.take()


def test_plugins_may_send_from_threads_of_their_own() -> None:
    """Payloads that threads send concurrently are neither lost nor duplicated."""
    plugin = Recording()
    channels = SideChannels(0, [plugin], first_of_run=True)
    channels.begin(session_pb2.EngineSettings(), policy_pb2.Assignment())

    def send(start: int) -> None:
        for number in range(start, start + 500):
            plugin.senders[0](b"%d" % number)

    threads = [threading.Thread(target=send, args=(start,)) for start in (0, 500, 1000)]
    for thread in threads:
        thread.start()
    got: list[bytes] = []
    while any(thread.is_alive() for thread in threads):
        got += [payload for channel, payload in unpack(channels.take(200)) if channel == RAW]
    while data := channels.take():
        got += [payload for channel, payload in unpack(data) if channel == RAW]
    assert sorted(got[1:], key=int) == [b"%d" % number for number in range(1500)]


def test_what_comes_goes_to_whom_it_belongs() -> None:
    """Statistics are returned, and raw messages reach their plug-in with the player's number."""
    plugin = Recording()
    channels = SideChannels(3, [plugin], first_of_run=False)
    stats = channels.receive(bytes.fromhex(STAT_HEX) + pack([(RAW, b"one")]) + stat("hits", 2.0, 2))
    assert stats == [
        StatRecord("Env/Stat", 1.25, StatAggregation.AVERAGE),
        StatRecord("hits", 2.0, StatAggregation.SUM),
    ]
    assert plugin.got == [(3, b"one")]


def test_only_the_first_player_of_the_run_says_what_is_most_recent() -> None:
    """MOST_RECENT counts only from the first player; other aggregations count from all."""
    data = b"".join(stat("key", 1.0, number) for number in range(4))
    first = SideChannels(0, first_of_run=True).receive(data)
    other = SideChannels(1, first_of_run=False).receive(data)
    assert [record.aggregation for record in first] == [1, 2, 3, 4]
    assert [record.aggregation for record in other] == [1, 3, 4]


def test_bytes_that_mean_nothing_cost_only_themselves() -> None:
    """Records before malformed bytes are used, and a thousand such messages are logged once."""
    channels = SideChannels(0, first_of_run=True)
    with capture_logs() as logs:
        for _ in range(1000):
            assert len(channels.receive(bytes.fromhex(STAT_HEX) + b"garbage")) == 1
            assert channels.receive(stat("key", float("nan"), 0)) == []
    assert [line["event"] for line in logs] == ["side_channel_unreadable", "statistic_unreadable"]


def test_a_plugin_that_raises_ends_nothing() -> None:
    """A plug-in that raises is named in one line and still gets the next message."""
    plugin = Recording()
    channels = SideChannels(0, [plugin], first_of_run=True)
    with capture_logs() as logs:
        channels.receive(pack([(RAW, b"raise"), (RAW, b"next")]))
    assert plugin.got == [(0, b"raise"), (0, b"next")]
    assert [(line["event"], line["plugin"]) for line in logs] == [("side_channel_plugin_failed", "Recording")]
