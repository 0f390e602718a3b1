"""Agents of a player's message as arrays: those that ask for a decision, and those whose episodes have just ended."""

import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

import numpy as np
import structlog
from numpy.typing import NDArray
from rollcast import limits
from rollcast.errors import BadSpec
from rollcast.specs import BehaviorSpec
from rollcast.unity.communicator_objects import agent_pb2, behavior_pb2
from rollcast.unity.communicator_objects.agent_pb2 import AgentInfoProto
from rollcast.unity.communicator_objects.behavior_pb2 import BrainParametersProto
from rollcast.unity.communicator_objects.unity_message_pb2 import UnityOutputProto
from rollcast.unity.finite import FaultyRows, zero_what_is_not_finite
from rollcast.unity.forms import action_spec, observation_spec, wire_layout
from rollcast.unity.masks import MaskReader
from rollcast.unity.sensors import BadSensorData, SensorReader, sensor_readers

from actor_client.rollout.agents.interface import AskingAgents, EndedAgents
from actor_client.unity.mailbox import BadPlayerData

Infos = Sequence[agent_pb2.AgentInfoProto]
Faulty = NDArray[np.bool_] | None
_Common = tuple[
    NDArray[np.int64], list[NDArray[Any]], NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], Faulty
]
MAX_BEHAVIORS: Final = 1024
"""Behaviors of one player, teams counted separately; bounds the memory that a player can use."""
MAX_TEAM: Final = 2**31 - 1
MAX_SHOWN_CHARACTERS: Final = 80
NAMELESS: Final = "obs"
"""Name for sensors of packages before 2.0, which send none."""


class BehaviorStep(NamedTuple):
    """Agents of one behavior in one message.

    Attributes:
        decisions: Agents that ask for actions; they are answered in this order.
        terminals: Agents whose episodes ended. An agent in both ended first and then began a new episode.
        faults: Lines for the log.
    """

    decisions: AskingAgents
    terminals: EndedAgents
    faults: tuple[str, ...]


class BehaviorForm:
    """Reads the agents of one behavior of one player.

    One thread at a time may read. Repeated faults are logged rarely.

    Args:
        behavior_id: The player's name of the behavior.
        spec: Observations and actions of its agents.
        sensors: One reader per observation.

    Attributes:
        behavior_id: The player's name of the behavior: ``Name?team=N``.
        name: The name without the team.
        team: The team.
        spec: Observations and actions of its agents.
    """

    __slots__ = ("_faulty_rows", "_masks", "_no_terminals", "_sensors", "_who", "behavior_id", "name", "spec", "team")

    def __init__(self, behavior_id: str, spec: BehaviorSpec, sensors: Sequence[SensorReader]) -> None:
        self.behavior_id = behavior_id
        self.name, self.team = parse_behavior_id(behavior_id)
        self.spec = spec
        self._sensors = tuple(sensors)
        self._masks = MaskReader(spec.action.discrete_branches)
        self._faulty_rows = FaultyRows()
        self._who = f"behavior {shown(behavior_id)}"
        self._no_terminals = self._terminals([], [])  # shared: most messages have no terminals

    def read(self, infos: Infos) -> BehaviorStep:
        """Returns the agents of one message.

        Raises:
            BadPlayerData: An agent cannot be read; the text is one line.
        """
        asking = [info for info in infos if not info.done]
        faults: list[str] = []
        ids, observations, rewards, groups, group_rewards, faulty = self._common(asking, faults)
        if len(set(ids.tolist())) != len(asking):
            found = ids.tolist()
            twice = next(agent for agent in found if found.count(agent) > 1)
            raise BadPlayerData(
                f"{self._who}, agent {twice}: requests two decisions in one message; an agent gets only one action"
            )
        masks, line = self._masks.read(asking)
        if line is not None:
            faults.append(f"{self._who}: {line}")
        decisions = AskingAgents(ids, observations, masks, rewards, groups, group_rewards, faulty)
        terminals = self._no_terminals
        if len(asking) != len(infos):
            terminals = self._terminals([info for info in infos if info.done], faults)
        return BehaviorStep(decisions, terminals, tuple(faults))

    def _terminals(self, ended: Infos, faults: list[str]) -> EndedAgents:
        if len(ended) > 1:
            first = {info.id: info for info in reversed(ended)}
            if len(first) != len(ended):
                faults.append(
                    f"{self._who}: {len(ended) - len(first)} agents ended twice in one message; the first end counts"
                )
                ended = [info for info in ended if first[info.id] is info]
        ids, observations, rewards, groups, group_rewards, faulty = self._common(ended, faults)
        interrupted = np.array([info.max_step_reached for info in ended], np.bool_)
        return EndedAgents(ids, observations, interrupted, rewards, groups, group_rewards, faulty)

    def _common(self, infos: Infos, faults: list[str]) -> _Common:
        """Returns the fields that decisions and terminals share."""
        ids = np.array([info.id for info in infos], np.int64)
        groups = np.array([info.group_id for info in infos], np.int64)
        bad: dict[str, NDArray[np.bool_]] = {}
        rewards = self._finite("the reward", [info.reward for info in infos], bad)
        group_rewards = self._finite("the group reward", [info.group_reward for info in infos], bad)
        observations = self._observations(infos, bad)
        faulty: Faulty = None
        if bad:
            faulty = np.logical_or.reduce(list(bad.values()))
            line = self._faulty_rows.line(ids, bad)
            if line is not None:
                faults.append(f"{self._who}: {line}")
        return ids, observations, rewards, groups, group_rewards, faulty

    @staticmethod
    def _finite(what: str, numbers: list[float], bad: dict[str, NDArray[np.bool_]]) -> NDArray[np.float32]:
        values = np.array(numbers, np.float32)
        rows = zero_what_is_not_finite(values)
        if rows is not None:
            bad[what] = rows
        return values

    def _observations(self, infos: Infos, bad: dict[str, NDArray[np.bool_]]) -> list[NDArray[Any]]:
        sensors, rows = self._sensors, [info.observations for info in infos]
        for info, row in zip(infos, rows, strict=True):
            if len(row) != len(sensors):
                raise BadPlayerData(
                    f"{self._who}, agent {info.id}: {len(row)} observations; the behavior began with {len(sensors)}. "
                    "All agents of a behavior need the same sensors: compare their Behavior Parameters and components"
                )
        found = []
        for position, sensor in enumerate(sensors):
            try:
                values, not_finite = sensor.read([row[position] for row in rows])
            except BadSensorData as error:
                raise BadPlayerData(
                    f"{self._who}, agent {infos[error.row].id}: observation {sensor.spec.name} {error}"
                ) from None
            if not_finite is not None:
                bad[f"observation {sensor.spec.name}"] = not_finite
            found.append(values)
        return found


def form_of(
    behavior_id: str, brain: behavior_pb2.BrainParametersProto, infos: Infos, package_version: str
) -> BehaviorForm:
    """Returns the reader of a new behavior.

    Args:
        behavior_id: The player's name of the behavior.
        brain: The player's description of its actions.
        infos: All its agents in its first message.
        package_version: Version of the player's ML-Agents package, from the handshake.

    Raises:
        BadPlayerData: The behavior cannot be trained; the text is one line.
    """
    spec = behavior_spec(behavior_id, brain, infos, package_version)
    first = infos[0].observations
    layouts = [wire_layout(observation, package_version) for observation in first]
    return BehaviorForm(behavior_id, spec, sensor_readers(spec, first, layouts))


class Part(NamedTuple):
    """Agents of one behavior id in a message, with the form that read them."""

    form: BehaviorForm
    step: BehaviorStep


class PlayerStep(NamedTuple):
    """A decoded message.

    Attributes:
        parts: One part per behavior id, unordered.
        side_channel: Side-channel records as received.
    """

    parts: list[Part]
    side_channel: bytes


class PlayerReader:
    """Reads the messages of one process of a player and remembers its behaviors. One thread at a time reads.

    Args:
        worker: The player's number in this actor.
        package_version: Version of its ML-Agents package.
    """

    def __init__(self, worker: int, package_version: str) -> None:
        self._worker = worker
        self._package_version = package_version
        self._brains: dict[str, BrainParametersProto] = {}
        self._forms: dict[str, BehaviorForm] = {}

    def read(self, output: UnityOutputProto) -> PlayerStep:
        """Decodes a message.

        Raises:
            BadPlayerData: The message cannot be used; the text is one line.
        """
        for brain in output.rl_initialization_output.brain_parameters:
            self._brains[brain.brain_name] = brain
        if len(self._brains) > MAX_BEHAVIORS:
            raise BadPlayerData(f"player {self._worker} has more than {MAX_BEHAVIORS} behaviors; use fewer")
        parts = []
        for behavior_id, infos in output.rl_output.agentInfos.items():
            agents = infos.value
            if not agents:
                continue
            form = self._forms.get(behavior_id)
            if form is None:
                form = self._forms[behavior_id] = self._new_form(behavior_id, agents)
            step = form.read(agents)
            for fault in step.faults:
                structlog.get_logger().warning("player_data", worker=self._worker, fault=fault)
            parts.append(Part(form, step))
        return PlayerStep(parts, output.rl_output.side_channel)

    def _new_form(self, behavior_id: str, agents: Sequence[AgentInfoProto]) -> BehaviorForm:
        brain = self._brains.get(behavior_id)
        if brain is None:
            raise BadPlayerData(
                f"player {self._worker}: agents of behavior {shown(behavior_id)} were sent before its "
                "description; restart the player"
            )
        return form_of(behavior_id, brain, agents, self._package_version)


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
