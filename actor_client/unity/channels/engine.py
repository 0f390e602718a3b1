"""The channel that sets up the engine: five records, sent before the first reset of a player."""

from typing import Final
from uuid import UUID

from rollcast.v1 import session_pb2

from actor_client.unity.channels.framing import float32, int32

ENGINE_CHANNEL: Final = UUID("e951342c-4f7e-11ea-b238-784f4387d1f7")

_SCREEN_RESOLUTION: Final = int32(0)
_QUALITY_LEVEL: Final = int32(1)
_TIME_SCALE: Final = int32(2)
_TARGET_FRAME_RATE: Final = int32(3)
_CAPTURE_FRAME_RATE: Final = int32(4)


def engine_records(engine: session_pb2.EngineSettings) -> list[tuple[UUID, bytes]]:
    """Returns the records that set resolution, quality, time scale and both frame rates, in this order."""
    payloads = (
        _SCREEN_RESOLUTION + int32(engine.width) + int32(engine.height),
        _QUALITY_LEVEL + int32(engine.quality_level),
        _TIME_SCALE + float32(engine.time_scale),
        _TARGET_FRAME_RATE + int32(engine.target_frame_rate),
        _CAPTURE_FRAME_RATE + int32(engine.capture_frame_rate),
    )
    return [(ENGINE_CHANNEL, payload) for payload in payloads]
