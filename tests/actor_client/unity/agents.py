"""Makes agents, observations and PNG files as a Unity player sends them."""

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rollcast.unity.communicator_objects import agent_pb2, behavior_pb2, observation_pb2, unity_message_pb2

from actor_client.unity.steps import BehaviorForm, form_of

BEHAVIOR = "Walker?team=0"
CHANNELS_FIRST = (1, 2, 2)
CHANNELS_LAST = (2, 2, 1)
ENTITIES = (4, 1)


def floats(
    values: Any,
    properties: Sequence[int] | None = None,
    *,
    name: str = "Sensor",
    goal: bool = False,
    shape: Sequence[int] | None = None,
) -> observation_pb2.ObservationProto:
    """Returns an uncompressed observation from an array, or from numbers and a claimed shape."""
    array = np.asarray(values, np.float32)
    return observation_pb2.ObservationProto(
        shape=array.shape if shape is None else shape,
        dimension_properties=[1] * array.ndim if properties is None else properties,
        float_data=observation_pb2.ObservationProto.FloatData(data=array.ravel().tolist()),
        observation_type=observation_pb2.GOAL_SIGNAL if goal else observation_pb2.DEFAULT,
        name=name,
    )


def packed(
    files: bytes,
    shape: Sequence[int],
    mapping: Sequence[int] = (),
    properties: Sequence[int] = CHANNELS_FIRST,
    *,
    name: str = "Camera",
) -> observation_pb2.ObservationProto:
    """Returns a compressed observation."""
    return observation_pb2.ObservationProto(
        shape=shape,
        compression_type=observation_pb2.PNG,
        compressed_data=files,
        compressed_channel_mapping=mapping,
        dimension_properties=properties,
        name=name,
    )


def agent(*observations: observation_pb2.ObservationProto, **fields: Any) -> agent_pb2.AgentInfoProto:
    """Returns an agent with these observations."""
    return agent_pb2.AgentInfoProto(observations=observations, **fields)


def brain(continuous: int = 0, branches: Sequence[int] = (), **fields: Any) -> behavior_pb2.BrainParametersProto:
    """Returns actions as players declare them since API version 1.3."""
    spec = behavior_pb2.ActionSpecProto(
        num_continuous_actions=continuous, num_discrete_actions=len(branches), discrete_branch_sizes=branches, **fields
    )
    return behavior_pb2.BrainParametersProto(brain_name=BEHAVIOR, is_training=True, action_spec=spec)


def over_the_wire(*infos: agent_pb2.AgentInfoProto) -> Sequence[agent_pb2.AgentInfoProto]:
    """Returns the same agents, serialized and parsed."""
    listed = unity_message_pb2.UnityRLOutputProto.ListAgentInfoProto(value=infos)
    return unity_message_pb2.UnityRLOutputProto.ListAgentInfoProto.FromString(listed.SerializeToString()).value


def form(
    *infos: agent_pb2.AgentInfoProto,
    actions: behavior_pb2.BrainParametersProto | None = None,
    version: str = "3.0.0",
) -> BehaviorForm:
    """Returns the form of a behavior that started with these agents."""
    return form_of(BEHAVIOR, brain(branches=(3, 2)) if actions is None else actions, infos, version)


def part(kind: bytes, data: bytes) -> bytes:
    """Returns a chunk of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(pixels: NDArray[np.uint8], *extra: bytes) -> bytes:
    """Returns a PNG file of [height, width, 3] or [height, width], with more chunks after its header."""
    height, width = pixels.shape[:2]
    color_type = 2 if pixels.ndim == 3 else 0
    rows = b"".join(b"\x00" + row.tobytes() for row in pixels)
    header = part(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, color_type, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + b"".join((header, *extra, part(b"IDAT", zlib.compress(rows)), part(b"IEND", b"")))


def pixels(height: int, width: int, seed: int = 0) -> NDArray[np.uint8]:
    """Returns random colors [height, width, 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
