"""Answers to players (greeting, reset, step, farewell), and the protocol versions that are served."""

import re
from typing import Final

from rollcast.unity.communicator_objects.unity_message_pb2 import (
    RESET,
    UnityMessageProto,
    UnityRLCapabilitiesProto,
    UnityRLInitializationOutputProto,
)

OK_STATUS: Final = 200
OVER_STATUS: Final = 400
API_VERSION: Final = "1.5.0"
"""Protocol version of ML-Agents' packages 1.9 to 3.x."""
PACKAGE_VERSION: Final = "1.1.0"
OLD_PACKAGE_VERSION: Final = "0.20.0"
"""Package version sent to the first packages, which refuse a trainer of an unknown version."""

_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?(?:[.\-+].*)?", re.ASCII)


def fault(worker: int, hello: UnityRLInitializationOutputProto) -> str:
    """Returns in one line why a player cannot be served; empty if it can.

    Majors must be equal, and minors too as long as the major is 0.
    """
    theirs, ours = _parsed(hello.communication_version), _parsed(API_VERSION)
    if theirs is not None and ours is not None and theirs[0] == ours[0] and (ours[0] > 0 or theirs[1] == ours[1]):
        return ""
    return (
        f"player {worker} uses version {hello.communication_version[:40]!r} of ML-Agents' protocol, and this "
        f"gateway uses {API_VERSION}: the major versions must be equal; build the player with an ML-Agents "
        "package from 1.0 to 3.x"
    )


def greeting(hello: UnityRLInitializationOutputProto, seed: int, num_areas: int) -> UnityMessageProto:
    """Returns the answer to a player's first message.

    Args:
        hello: The message.
        seed: Seed of the player's random numbers, in [0, 2**31).
        num_areas: Number of copies of the player's training area.
    """
    reply = _message()
    answer = reply.unity_input.rl_initialization_input
    answer.seed = seed
    answer.communication_version = API_VERSION
    answer.package_version = OLD_PACKAGE_VERSION if _is_old(hello) else PACKAGE_VERSION
    answer.num_areas = num_areas
    answer.capabilities.CopyFrom(
        UnityRLCapabilitiesProto(
            baseRLCapabilities=True,
            concatenatedPngObservations=True,
            compressedChannelMapping=True,
            hybridActions=True,
            trainingAnalytics=True,
            variableLengthObservation=True,
            multiAgentGroups=True,
        )
    )
    return reply


def reset(side_channel: bytes) -> UnityMessageProto:
    """Returns an answer that resets all agents of a player."""
    reply = _message()
    reply.unity_input.rl_input.command = RESET
    reply.unity_input.rl_input.side_channel = side_channel
    return reply


def step() -> UnityMessageProto:
    """Returns an answer that lets a player continue; actions and side channels are added to its `rl_input`."""
    reply = _message()
    reply.unity_input.rl_input.SetInParent()  # a player reads it without checking that it exists
    return reply


def farewell() -> UnityMessageProto:
    """Returns the answer that makes a player quit."""
    reply = UnityMessageProto()
    reply.header.status = OVER_STATUS
    return reply


def _message() -> UnityMessageProto:
    reply = UnityMessageProto()
    reply.header.status = OK_STATUS
    return reply


def _parsed(version: str) -> tuple[int, int] | None:
    found = _VERSION.fullmatch(version)
    return (int(found[1]), int(found[2])) if found else None


def _is_old(hello: UnityRLInitializationOutputProto) -> bool:
    package = _parsed(hello.package_version)
    return package is None or package[0] <= 1
