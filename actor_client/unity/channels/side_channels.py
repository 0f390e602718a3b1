"""All side channels of one player: queues outgoing payloads and distributes incoming ones."""

import threading
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final
from uuid import UUID

import structlog
from rollcast.enums import StatAggregation
from rollcast.limits import MIB
from rollcast.throttle import Throttle
from rollcast.v1 import policy_pb2, session_pb2

from actor_client.unity.channels.framing import HEADER_BYTES, BadSideChannel, pack, unpack
from actor_client.unity.channels.plugins import ChannelPlugin
from actor_client.unity.channels.records import (
    ENGINE_CHANNEL,
    PARAMETERS_CHANNEL,
    STATS_CHANNEL,
    StatRecord,
    engine_records,
    parameter_records,
    read_stat,
)

REPLY_BUDGET_BYTES: Final = 3 * MIB
"""Side-channel bytes in one reply. A client refuses messages above 4 MiB; actions need the rest."""
MAX_WAITING_BYTES: Final = 64 * MIB
"""Bytes that plug-ins may queue for one player."""
MAX_UNKNOWN_CHANNELS: Final = 16
"""Unknown channels that are logged, one line each; a player that invents channels cannot fill the log."""

log = structlog.get_logger(__name__)

Record = tuple[UUID, bytes]


class SideChannels:
    """The side channels of one player, for the stepping thread; plug-ins may send from any thread.

    Args:
        worker: The player's number in this actor.
        plugins: The user's channels.
        first_of_run: True for worker 0 of actor 0. Only this player's MOST_RECENT statistics count, so that the value
            does not alternate between players.
    """

    def __init__(self, worker: int, plugins: Sequence[ChannelPlugin] = (), *, first_of_run: bool) -> None:
        self._worker = worker
        self._plugins = {plugin.channel_id: plugin for plugin in plugins}
        self._first_of_run = first_of_run
        self._lock = threading.Lock()
        self._waiting: deque[Record] = deque()
        self._waiting_bytes = 0
        self._revision = 0
        self._beginning = 0
        self._run_seed = 0
        self._unknown: set[UUID] = set()
        self._notices = Throttle()

    def begin(self, engine: session_pb2.EngineSettings, assignment: policy_pb2.Assignment, run_seed: int = 0) -> None:
        """Drops what was queued for the previous process, and queues what a player needs before its first scene.

        Args:
            engine: The engine settings.
            assignment: The environment parameters.
            run_seed: See `parameter_records`.
        """
        self._revision, self._run_seed = assignment.settings_revision, run_seed
        self._beginning += 1
        with self._lock:
            self._waiting.clear()
            self._waiting_bytes = 0
        self._queue(parameter_records(assignment, run_seed))
        self._queue(engine_records(engine))
        for plugin in self._plugins.values():
            try:
                plugin.on_player(self._worker, partial(self._send, plugin.channel_id, self._beginning))
            except Exception as error:  # noqa: BLE001 - code of the user's
                self._note_plugin_fault(plugin, error)

    def update(self, assignment: policy_pb2.Assignment) -> None:
        """Queues the environment parameters if they have changed; the next reply carries them."""
        if assignment.settings_revision != self._revision:
            self._revision = assignment.settings_revision
            self._queue(parameter_records(assignment, self._run_seed))

    def take(self, budget_bytes: int = REPLY_BUDGET_BYTES) -> bytes:
        """Returns queued bytes up to the budget; the rest follows with later replies."""
        with self._lock:
            if not self._waiting:
                return b""
            records: list[Record] = []
            room = budget_bytes
            while self._waiting and _size(self._waiting[0]) <= room:
                record = self._waiting.popleft()
                room -= _size(record)
                records.append(record)
            self._waiting_bytes -= budget_bytes - room
        return pack(records)

    def receive(self, data: bytes) -> list[StatRecord]:
        """Passes a player's payloads to the plug-ins, and returns its statistics.

        No fault ends an exchange. Records of an unknown channel are dropped, malformed bytes are dropped with all
        that follows them, and both are logged.
        """
        if not data:
            return []
        try:
            records = unpack(data)
        except BadSideChannel as error:
            self._warn("side_channel_unreadable", error)
            records = list(error.intact)
        stats: list[StatRecord] = []
        for channel, payload in records:
            if channel == STATS_CHANNEL:
                self._add_stat(stats, payload)
            elif (plugin := self._plugins.get(channel)) is not None:
                try:
                    plugin.on_message(self._worker, payload)
                except Exception as error:  # noqa: BLE001 - code of the user's
                    self._note_plugin_fault(plugin, error)
            else:
                self._note_unknown(channel)
        return stats

    def _add_stat(self, stats: list[StatRecord], payload: bytes) -> None:
        try:
            stat = read_stat(payload)
        except BadSideChannel as error:
            self._warn("statistic_unreadable", error)
            return
        if stat.aggregation is not StatAggregation.MOST_RECENT or self._first_of_run:
            stats.append(stat)

    def _send(self, channel: UUID, beginning: int, data: bytes) -> None:
        """Queues a payload of a plug-in."""
        record = (channel, bytes(data))
        if _size(record) > REPLY_BUDGET_BYTES:
            raise ValueError(
                f"a message of {len(data)} bytes; a reply has space for {REPLY_BUDGET_BYTES - HEADER_BYTES}"
            )
        with self._lock:
            is_full = self._waiting_bytes + _size(record) > MAX_WAITING_BYTES
            # A payload that a plug-in queued for the previous process is not sent.
            if beginning == self._beginning and not is_full:
                self._waiting.append(record)
                self._waiting_bytes += _size(record)
        if is_full:
            raise ValueError(
                f"the messages that wait for player {self._worker} would exceed {MAX_WAITING_BYTES} bytes: send "
                "less, or less often"
            )

    def _queue(self, records: Sequence[Record]) -> None:
        fitting = [record for record in records if _size(record) <= REPLY_BUDGET_BYTES]
        if len(fitting) < len(records):
            log.error("parameters_too_large", worker=self._worker, limit_bytes=REPLY_BUDGET_BYTES, action="left out")
        with self._lock:
            self._waiting.extend(fitting)
            self._waiting_bytes += sum(map(_size, fitting))

    def _note_unknown(self, channel: UUID) -> None:
        if channel in self._unknown or len(self._unknown) >= MAX_UNKNOWN_CHANNELS:
            return
        self._unknown.add(channel)
        if channel in (ENGINE_CHANNEL, PARAMETERS_CHANNEL):
            log.warning("side_channel_one_way", worker=self._worker, channel=str(channel), action="skipped")
            return
        log.warning(
            "side_channel_unknown",
            worker=self._worker,
            channel=str(channel),
            action="skipped; to handle it, add a side channel with --side-channel module:callable",
        )

    def _note_plugin_fault(self, plugin: ChannelPlugin, error: Exception) -> None:
        if (left_out := self._notices.admit(str(plugin.channel_id))) is not None:
            log.error(
                "side_channel_plugin_failed",
                worker=self._worker,
                plugin=type(plugin).__name__,
                channel=str(plugin.channel_id),
                error=f"{type(error).__name__}: {error}",
                left_out=left_out,
            )

    def _warn(self, event: str, error: BadSideChannel) -> None:
        if (left_out := self._notices.admit(event)) is not None:
            log.warning(event, worker=self._worker, reason=str(error), left_out=left_out)


def _size(record: Record) -> int:
    return HEADER_BYTES + len(record[1])
