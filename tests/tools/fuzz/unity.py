"""What Unity's players send: messages of the exchange, side channels, and pictures."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from uuid import UUID

import numpy as np
from rollcast.demonstrations.sensors import encode
from rollcast.unity.pictures import BadPicture, PictureReader

from actor_client.unity import conversation, replies
from actor_client.unity.channels.framing import BadSideChannel, pack, string, unpack
from actor_client.unity.channels.records import STATS_CHANNEL, read_stat
from actor_client.unity.channels.side_channels import SideChannels
from actor_client.unity.mailbox import BadPlayerData
from actor_client.unity.steps import PlayerReader
from tests.actor_client.unity.agents import agent, floats, packed
from tests.actor_client.unity.harness import brain, hello, ready
from tests.tools.fuzz.target import Target

BALL = "Ball?team=0"


def _exchange(data: bytes) -> None:
    """Reads a player's message as the gateway does."""
    message = conversation._parsed(data)
    output = message.unity_output
    if output.HasField("rl_initialization_output"):
        replies.fault(0, output.rl_initialization_output)
    if not output.HasField("rl_output"):
        return
    reader = PlayerReader(0, output.rl_initialization_output.package_version)
    step = reader.read(output)
    for part in step.parts:
        rows = len(part.step.decisions.ids)
        assert all(len(values) == rows for values in part.step.decisions.observations)
        assert all(np.isfinite(values).all() for values in part.step.decisions.observations)
    reader.read(output)  # the forms of the first message now exist
    SideChannels(0, first_of_run=True).receive(step.side_channel)


def _report(*observations: object, **fields: object) -> bytes:
    message = ready()
    message.unity_output.rl_output.agentInfos[BALL].value.extend(
        [agent(*observations, id=1, **fields), agent(*observations, id=2, done=True, reward=1.0)]  # type: ignore[arg-type]
    )
    message.unity_output.rl_initialization_output.brain_parameters.append(brain(BALL))
    message.unity_output.rl_output.side_channel = _channels()["statistics"]
    return message.SerializeToString()


def _messages() -> dict[str, bytes]:
    picture = encode(np.arange(36, dtype=np.uint8).reshape(3, 3, 4))
    entities = floats(np.ones((3, 2)), (4, 1), name="others")
    return {
        "hello": hello().SerializeToString(),
        "ready": ready().SerializeToString(),
        "vector": _report(floats([1.0, 2.0])),
        "masked": _report(floats([1.0]), action_mask=[False, True], group_id=3, group_reward=0.5),
        "picture": _report(packed(picture, (3, 3, 4)), floats([1.0])),
        "entities": _report(entities, floats([0.5], goal=True)),
    }


class _Plugin:
    """A user's channel that accepts everything."""

    channel_id = UUID(int=7)

    def on_player(self, worker: int, send: Callable[[bytes], None]) -> None:
        send(b"begin")

    def on_message(self, worker: int, data: bytes) -> None:
        assert isinstance(data, bytes)


def _side_channel(data: bytes) -> None:
    """Reads side channels: a fault never ends an exchange, and what is intact before it is used."""
    SideChannels(0, (_Plugin(),), first_of_run=True).receive(data)
    try:
        records = unpack(data)
    except BadSideChannel as error:
        records = list(error.intact)
    else:
        assert pack(records) == data
    for _, payload in records:
        try:
            read_stat(payload)
        except BadSideChannel:
            continue


def _channels() -> dict[str, bytes]:
    stat = string("Environment/Height") + struct.pack("<fi", 1.5, 0)
    return {
        "statistics": pack([(STATS_CHANNEL, stat), (STATS_CHANNEL, stat)]),
        "plugin": pack([(_Plugin.channel_id, b"text"), (UUID(int=8), b"")]),
    }


def _picture(data: bytes) -> None:
    """Decodes a picture of 3 x 3 x 4 pixels, with the mapping in the first byte."""
    mappings: tuple[tuple[int, ...], ...] = ((), (0, 1, 2), (0, 0, 1), (0, -1, 2, 1, 1, 2))
    into = np.zeros((3, 3, 4), np.uint8)
    PictureReader(3, 3, 4).read(_with_checksums(data[1:]), mappings[(data[0] if data else 0) % 4], into)


def _with_checksums(data: bytes) -> bytes:
    """Corrects the checksums of PNG parts, so that a changed byte reaches the decoder."""
    found, at = bytearray(data), 8
    while at + 12 <= len(found):
        end = at + 8 + int.from_bytes(found[at : at + 4], "big")
        if end + 4 > len(found):
            break
        found[end : end + 4] = zlib.crc32(found[at + 4 : end]).to_bytes(4, "big")
        at = end + 4
        if bytes(found[at : at + 8]) == b"\x89PNG\r\n\x1a\n":
            at += 8
    return bytes(found)


def _pictures() -> dict[str, bytes]:
    files = encode(np.arange(36, dtype=np.uint8).reshape(3, 3, 4))
    return {"one": b"\x01" + files, "two": b"\x03" + files + files}


TARGETS = (
    Target("unity-message", _exchange, (BadPlayerData, conversation._StrayCall), _messages, words=(BALL.encode(),)),
    Target("side-channel", _side_channel, (), _channels, words=(STATS_CHANNEL.bytes_le, _Plugin.channel_id.bytes_le)),
    Target("picture", _picture, (BadPicture,), _pictures),
)
