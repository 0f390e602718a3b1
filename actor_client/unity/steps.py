"""Agents of a player's message as arrays: those that ask for a decision, and those whose episode has just ended."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from communicator_objects import agent_pb2, behavior_pb2
from numpy.typing import NDArray
from rollcast.specs import BehaviorSpec

from actor_client.unity.masks import MaskReader
from actor_client.unity.sensors import BadSensorData, SensorReader, sensor_readers
from actor_client.unity.specs import BadPlayerData, behavior_spec, parse_behavior_id, shown

__all__ = ["BadPlayerData", "BehaviorForm", "BehaviorStep", "DecisionBatch", "TerminalBatch", "form_of"]

Infos = Sequence[agent_pb2.AgentInfoProto]
Faulty = NDArray[np.bool_] | None

_MAX_SHOWN_AGENTS: Final = 4


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
    """What one message says of one behavior.

    Attributes:
        decisions: Agents that ask; they are answered in this order.
        terminals: Agents that ended. One that is in both ended first, and then began again.
        faults: Lines for the log.
    """

    decisions: DecisionBatch
    terminals: TerminalBatch
    faults: tuple[str, ...]


class BehaviorForm:
    """How agents of one behavior of one player are read.

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

    __slots__ = ("_bad_rows", "_masks", "_next_report", "_sensors", "behavior_id", "name", "spec", "team")

    def __init__(self, behavior_id: str, spec: BehaviorSpec, sensors: Sequence[SensorReader]) -> None:
        self.behavior_id = behavior_id
        self.name, self.team = parse_behavior_id(behavior_id)
        self.spec = spec
        self._sensors = tuple(sensors)
        self._masks = MaskReader(spec.action.discrete_branches)
        self._bad_rows = 0
        self._next_report = 1

    def read(self, infos: Infos) -> BehaviorStep:
        """Returns the agents of one message.

        Raises:
            BadPlayerData: An agent cannot be read, in one line.
        """
        asking = [info for info in infos if not info.done]
        ended = [] if len(asking) == len(infos) else [info for info in infos if info.done]
        faults: list[str] = []
        ids, observations, rewards, groups, group_rewards, faulty = self._common(asking, faults)
        if len(set(ids.tolist())) != len(asking):
            raise BadPlayerData(f"behavior {shown(self.behavior_id)}: an agent asks twice in one message: {ids[:16]}")
        masks, line = self._masks.read(asking)
        if line is not None:
            faults.append(f"behavior {shown(self.behavior_id)}: {line}")
        decisions = DecisionBatch(ids, observations, masks, rewards, groups, group_rewards, faulty)
        return BehaviorStep(decisions, self._terminals(ended, faults), tuple(faults))

    def _terminals(self, ended: Infos, faults: list[str]) -> TerminalBatch:
        if len(ended) > 1:
            first = {info.id: info for info in reversed(ended)}
            if len(first) != len(ended):
                faults.append(
                    f"behavior {shown(self.behavior_id)}: {len(ended) - len(first)} agents ended twice in one message; "
                    "the first end counts"
                )
                ended = [info for info in ended if first[info.id] is info]
        ids, observations, rewards, groups, group_rewards, faulty = self._common(ended, faults)
        interrupted = np.array([info.max_step_reached for info in ended], np.bool_)
        return TerminalBatch(ids, observations, interrupted, rewards, groups, group_rewards, faulty)

    def _common(self, infos: Infos, faults: list[str]) -> tuple[Any, ...]:
        """Returns ids, observations, rewards, group ids, group rewards and faulty rows."""
        ids = np.array([info.id for info in infos], np.int64)
        rewards = np.array([[info.reward, info.group_reward] for info in infos], np.float32).reshape(-1, 2)
        groups = np.array([info.group_id for info in infos], np.int64)
        observations = self._observations(infos)
        faulty: Faulty = None
        for values in (rewards, *observations):
            if values.dtype.kind != "f" or np.isfinite(values).all():
                continue
            bad = ~np.isfinite(values.reshape(len(infos), -1)).all(axis=1)
            faulty = bad if faulty is None else faulty | bad
            values[~np.isfinite(values)] = 0
        if faulty is not None:
            faults.append(f"behavior {shown(self.behavior_id)}: NaN or infinity in {ids[faulty][:4].tolist()}")
        return ids, observations, rewards[:, 0], groups, rewards[:, 1], faulty

    def _observations(self, infos: Infos) -> list[NDArray[Any]]:
        sensors, rows = self._sensors, [info.observations for info in infos]
        for info, row in zip(infos, rows, strict=True):
            if len(row) != len(sensors):
                raise BadPlayerData(
                    f"behavior {shown(self.behavior_id)}, agent {info.id}: {len(row)} observations; the behavior has "
                    f"{len(sensors)}. All agents of a behavior need the same sensors"
                )
        try:
            return [sensor.read([row[position] for row in rows]) for position, sensor in enumerate(sensors)]
        except BadSensorData as error:
            agent = infos[error.row].id
            raise BadPlayerData(f"behavior {shown(self.behavior_id)}, agent {agent}: {error}") from None


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
    return BehaviorForm(behavior_id, spec, sensor_readers(spec, infos[0].observations))
