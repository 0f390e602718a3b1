"""Agents of a player's message as arrays: those that ask for a decision, and those whose episode has just ended."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import structlog
from communicator_objects import agent_pb2, behavior_pb2
from communicator_objects.agent_pb2 import AgentInfoProto
from communicator_objects.behavior_pb2 import BrainParametersProto
from communicator_objects.unity_message_pb2 import UnityOutputProto
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec
from rollcast.unity.finite import FaultyRows, zero_what_is_not_finite
from rollcast.unity.forms import wire_layout
from rollcast.unity.masks import MaskReader
from rollcast.unity.sensors import BadSensorData, SensorReader, sensor_readers

from actor_client.unity.mailbox import BadPlayerData
from actor_client.unity.specs import behavior_spec, parse_behavior_id, shown

Infos = Sequence[agent_pb2.AgentInfoProto]
Faulty = NDArray[np.bool_] | None
_Common = tuple[
    NDArray[np.int64], list[NDArray[Any]], NDArray[np.float32], NDArray[np.int64], NDArray[np.float32], Faulty
]
MAX_BEHAVIORS: Final = 1024
"""Of one player, teams counted apart; a player that makes them up cannot fill the memory."""


class DecisionBatch(NamedTuple):
    """Agents of one behavior of one player that ask for a decision; n rows in the order of the message.

    Attributes:
        ids: Of the agents, int64 [n]; no two are the same.
        observations: One array an observation, [n, *shape] each, in the order and dtype of the spec.
        masks: uint8 [n, sum of branches], 1 = allowed, at least one choice a branch; None = all are allowed.
        rewards: Since each agent's last decision, float32 [n].
        group_ids: int64 [n]; 0 = no group.
        group_rewards: Since each agent's last decision, float32 [n].
        faulty: Rows with NaN or infinity, replaced by 0, bool [n]; None if there are none.
    """

    ids: NDArray[np.int64]
    observations: list[NDArray[Any]]
    masks: NDArray[np.uint8] | None
    rewards: NDArray[np.float32]
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]
    faulty: Faulty = None


class TerminalBatch(NamedTuple):
    """Agents whose episode has just ended; see `DecisionBatch`.

    Attributes:
        ids: Of the agents, int64 [n]; no two are the same.
        observations: The last ones, [n, *shape] each.
        interrupted: The episode was ended from outside (a step limit), bool [n].
        rewards: float32 [n].
        group_ids: int64 [n].
        group_rewards: float32 [n].
        faulty: bool [n] or None.
    """

    ids: NDArray[np.int64]
    observations: list[NDArray[Any]]
    interrupted: NDArray[np.bool_]
    rewards: NDArray[np.float32]
    group_ids: NDArray[np.int64]
    group_rewards: NDArray[np.float32]
    faulty: Faulty = None


class BehaviorStep(NamedTuple):
    """Agents of one behavior in one message.

    Attributes:
        decisions: Agents that ask; they are answered in this order.
        terminals: Agents that ended. One that is in both ended first, and then began again.
        faults: Lines for the log.
    """

    decisions: DecisionBatch
    terminals: TerminalBatch
    faults: tuple[str, ...]


class BehaviorForm:
    """Reads the agents of one behavior of one player.

    One thread at a time may read. What goes wrong again and again makes few lines for the log.

    Args:
        behavior_id: As the player names it.
        spec: What its agents see and do.
        sensors: One reader an observation.

    Attributes:
        behavior_id: As the player names it: ``Name?team=N``.
        name: Its first part.
        team: Its second part.
        spec: What its agents see and do.
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
        self._no_terminals = self._terminals([], [])  # What most messages have; without rows, it can be shared.

    def read(self, infos: Infos) -> BehaviorStep:
        """Returns the agents of one message.

        Raises:
            BadPlayerData: An agent cannot be read, in one line.
        """
        asking = [info for info in infos if not info.done]
        faults: list[str] = []
        ids, observations, rewards, groups, group_rewards, faulty = self._common(asking, faults)
        if len(set(ids.tolist())) != len(asking):
            found = ids.tolist()
            twice = next(agent for agent in found if found.count(agent) > 1)
            raise BadPlayerData(
                f"{self._who}, agent {twice}: asks twice in one message; an agent can be told one action"
            )
        masks, line = self._masks.read(asking)
        if line is not None:
            faults.append(f"{self._who}: {line}")
        decisions = DecisionBatch(ids, observations, masks, rewards, groups, group_rewards, faulty)
        terminals = self._no_terminals
        if len(asking) != len(infos):
            terminals = self._terminals([info for info in infos if info.done], faults)
        return BehaviorStep(decisions, terminals, tuple(faults))

    def _terminals(self, ended: Infos, faults: list[str]) -> TerminalBatch:
        if len(ended) > 1:
            first = {info.id: info for info in reversed(ended)}
            if len(first) != len(ended):
                faults.append(
                    f"{self._who}: {len(ended) - len(first)} agents ended twice in one message; the first end counts"
                )
                ended = [info for info in ended if first[info.id] is info]
        ids, observations, rewards, groups, group_rewards, faulty = self._common(ended, faults)
        interrupted = np.array([info.max_step_reached for info in ended], np.bool_)
        return TerminalBatch(ids, observations, interrupted, rewards, groups, group_rewards, faulty)

    def _common(self, infos: Infos, faults: list[str]) -> _Common:
        """Returns what decisions and terminals have in common."""
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
    """Returns how a behavior is read that has just come.

    Args:
        behavior_id: As the player names it.
        brain: What the player told of its actions.
        infos: All its agents in the message that brought it.
        package_version: Of the player's ML-Agents package, from the handshake.

    Raises:
        BadPlayerData: It cannot be trained with, in one line.
    """
    spec = behavior_spec(behavior_id, brain, infos, package_version)
    first = infos[0].observations
    layouts = [wire_layout(observation, package_version) for observation in first]
    return BehaviorForm(behavior_id, spec, sensor_readers(spec, first, layouts))


class Part(NamedTuple):
    """Agents of one behavior id in a message, and how they were read."""

    form: BehaviorForm
    step: BehaviorStep


class PlayerStep(NamedTuple):
    """A decoded message.

    Attributes:
        parts: One a behavior id, in no order.
        side_channel: Records of side channels, as they came.
    """

    parts: list[Part]
    side_channel: bytes


class PlayerReader:
    """Reads the messages of one life of a player; it remembers the behaviors that came. One thread at a time reads.

    Args:
        worker: Which player of this process it is.
        package_version: Of its ML-Agents package.
    """

    def __init__(self, worker: int, package_version: str) -> None:
        self._worker = worker
        self._package_version = package_version
        self._brains: dict[str, BrainParametersProto] = {}
        self._forms: dict[str, BehaviorForm] = {}

    def read(self, output: UnityOutputProto) -> PlayerStep:
        """Returns what a message says.

        Raises:
            BadPlayerData: It cannot be used, in one line.
        """
        for brain in output.rl_initialization_output.brain_parameters:
            self._brains[brain.brain_name] = brain
        if len(self._brains) > MAX_BEHAVIORS:
            raise BadPlayerData(f"player {self._worker} has more than {MAX_BEHAVIORS} behaviors; have fewer")
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
                f"player {self._worker}: agents of behavior {shown(behavior_id)} came before the behavior was told of; "
                "start the player again"
            )
        return form_of(behavior_id, brain, agents, self._package_version)
