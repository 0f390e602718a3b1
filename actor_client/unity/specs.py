"""Derives the spec of a behavior from its first agents: Unity sends no description of observations."""

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

from rollcast import limits
from rollcast.errors import BadSpec
from rollcast.specs import BehaviorSpec
from rollcast.unity.communicator_objects import agent_pb2, behavior_pb2
from rollcast.unity.forms import action_spec, observation_spec

from actor_client.unity.mailbox import BadPlayerData

MAX_TEAM: Final = 2**31 - 1
MAX_SHOWN_CHARACTERS: Final = 80
NAMELESS: Final = "obs"
"""Name for sensors of packages before 2.0, which send none."""


def parse_behavior_id(behavior_id: str) -> tuple[str, int]:
    """Splits ``Name?team=N``; old packages send ``Name``, which is team 0.

    Raises:
        BadPlayerData: The name is not allowed, or the team is not a number.
    """
    name, _, query = behavior_id.partition("?")
    fault = limits.behavior_name_fault(name)
    if fault is not None:
        raise BadPlayerData(f"behavior {shown(behavior_id)}: its name {fault}; rename it in its Behavior Parameters")
    text = parse_qs(query).get("team", ["0"])[0] if len(query) <= MAX_SHOWN_CHARACTERS else query
    if not re.fullmatch(r"[0-9]{1,10}", text) or int(text) > MAX_TEAM:
        raise BadPlayerData(f"behavior {shown(behavior_id)}: team {shown(text)} is not a number from 0 to {MAX_TEAM}")
    return name, int(text)


def shown(text: str) -> str:
    """Returns untrusted text for a log line: quoted, escaped, cut."""
    return repr(text[:MAX_SHOWN_CHARACTERS]) + ("..." if len(text) > MAX_SHOWN_CHARACTERS else "")


def behavior_spec(
    behavior_id: str,
    brain: behavior_pb2.BrainParametersProto,
    infos: Sequence[agent_pb2.AgentInfoProto],
    package_version: str,
) -> BehaviorSpec:
    """Returns the spec of a behavior.

    Args:
        behavior_id: The player's name of the behavior.
        brain: The player's description of its actions.
        infos: All its agents in its first message; the first agent's observations count.
        package_version: Version of the player's ML-Agents package, which decides the axis of a picture's channels if
            the player does not.

    Raises:
        BadPlayerData: The behavior cannot be trained; the text is one line.
    """
    name, _ = parse_behavior_id(behavior_id)
    if not infos:
        raise BadPlayerData(f"behavior {shown(behavior_id)} was sent without agents, so its observations are unknown")
    taken: set[str] = set()
    observations = []
    for position, observation in enumerate(infos[0].observations[: limits.MAX_OBSERVATIONS + 1]):
        try:
            spec = observation_spec(observation, _name(observation.name, position, taken), package_version)
        except BadSpec as error:
            raise BadPlayerData(
                f"behavior {shown(behavior_id)}, observation {position} ({shown(observation.name)}): {error}"
            ) from None
        taken.add(spec.name)
        observations.append(spec)
    grouped = any(info.group_id for info in infos)
    try:
        spec_of_all = BehaviorSpec(name, tuple(observations), action_spec(brain), grouped)
        spec_of_all.to_message()
    except BadSpec as error:
        raise BadPlayerData(f"behavior {shown(behavior_id)}: {error}") from None
    return spec_of_all


def _name(sensor: str, position: int, taken: set[str]) -> str:
    """Returns a valid, unused observation name that depends only on the sensors' names and order."""
    plain = re.sub(r"[^A-Za-z0-9_.-]", "_", sensor[:64]) or f"{NAMELESS}_{position}"
    name, number = plain, 2
    while name in taken:
        suffix = f"_{number}"
        name, number = plain[: 64 - len(suffix)] + suffix, number + 1
    return name
