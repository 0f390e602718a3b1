"""The channel on which players send statistics of their own."""

import math
from typing import Final, NamedTuple
from uuid import UUID

from rollcast.enums import StatAggregation
from rollcast.limits import MAX_STAT_KEY_LENGTH

from actor_client.unity.channels.framing import BadSideChannel, Reader

STATS_CHANNEL: Final = UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")

_AGGREGATIONS: Final = (
    StatAggregation.AVERAGE,
    StatAggregation.MOST_RECENT,
    StatAggregation.SUM,
    StatAggregation.HISTOGRAM,
)
"""By the number on the wire."""


class StatRecord(NamedTuple):
    """One value of one statistic."""

    key: str
    value: float
    aggregation: StatAggregation


def read_stat(payload: bytes) -> StatRecord:
    """Reads the payload of a statistics record.

    Raises:
        BadSideChannel: It is no such payload, or no learner would take the key or the value.
    """
    reader = Reader(payload)
    key, value, number = reader.string(), reader.float32(), reader.int32()
    if not 1 <= len(key) <= MAX_STAT_KEY_LENGTH or not key.isprintable():
        raise BadSideChannel(
            f"statistic {key[:80]!r} has {len(key)} characters; 1 to {MAX_STAT_KEY_LENGTH} printable ones are allowed"
        )
    if not 0 <= number < len(_AGGREGATIONS):
        raise BadSideChannel(f"statistic {key!r} has aggregation {number}; 0 to {len(_AGGREGATIONS) - 1} are known")
    if not math.isfinite(value):
        raise BadSideChannel(f"statistic {key!r} is {value}")
    return StatRecord(key, value, _AGGREGATIONS[number])
