"""Writes a demonstration file of whole, consecutive episodes, so that every reader of the format can use it.

The action of a step is in the record of its observation, and its reward in the next one, as ML-Agents' reader expects.
The head is updated with each episode: a killed recorder leaves its finished episodes, and an episode that does not fit
the disk is not in the file at all.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import BRAIN_POSITION, delimited, head
from rollcast.demonstrations.sensors import to_message
from rollcast.limits import MIB
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.unity.communicator_objects.agent_pb2 import AgentActionProto, AgentInfoProto
from rollcast.unity.communicator_objects.behavior_pb2 import ActionSpecProto, BrainParametersProto
from rollcast.unity.communicator_objects.demonstration_pb2 import AgentInfoActionPairProto

MAX_OPEN_BYTES: Final = 1024 * MIB
"""Bytes of all episodes that have not ended: they wait in memory, since agents' episodes must not mix in a file."""


class Action(NamedTuple):
    """The action of one agent.

    Attributes:
        continuous: Environment actions, float32 [n]; None without axes.
        discrete: Choices counted from 0, [b]; None without branches.
        masks: Allowed choices, uint8 [sum of branches], 1 = allowed; None = all.
    """

    continuous: NDArray[np.float32] | None = None
    discrete: NDArray[np.int32] | None = None
    masks: NDArray[np.uint8] | None = None


@dataclass(slots=True)
class _Episode:
    """An episode that has not ended.

    Attributes:
        records: Serialized records, preceded by their lengths.
        size_bytes: Bytes of all records.
        total: The return so far, the group's rewards included.
        reward: Reward of the last step, for the next record.
        group_reward: See reward.
        group: Group of the agent; 0 = none.
    """

    records: list[bytes] = field(default_factory=list)
    size_bytes: int = 0
    total: float = 0.0
    reward: float = 0.0
    group_reward: float = 0.0
    group: int = 0


class DemonstrationWriter:
    """Writes one file; a context manager. The caller numbers the agents.

    Args:
        path: The file, which must not exist.
        spec: Observations and actions.
        team: Team of the agents.

    Attributes:
        path: The file.
        episodes: Number of written episodes.
        steps: Number of written decisions.
        returns: Returns of the episodes, the group's rewards included.

    Raises:
        BadDemonstration: The file exists, or cannot be written.
    """

    def __init__(self, path: Path, spec: BehaviorSpec, *, team: int = 0) -> None:
        self.path = path
        self.episodes = 0
        self.steps = 0
        self.returns: list[float] = []
        self._spec = spec
        self._units = ActionUnits(spec.action)
        self._open: dict[int, _Episode] = {}
        self._open_bytes = 0
        self._records = 0
        self._end = 0  # of the part that the file keeps, in bytes
        self._stream = _created(path)
        try:
            self._append(self._head().ljust(BRAIN_POSITION, b"\0") + delimited(_brain(spec, team)))
        except BadDemonstration:
            self._stream.close()
            path.unlink(missing_ok=True)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def step(
        self,
        agent: int,
        observations: Sequence[NDArray[Any]],
        action: Action,
        reward: float,
        *,
        group: int = 0,
        group_reward: float = 0.0,
    ) -> None:
        """Adds one step of an agent.

        Args:
            agent: The agent's number.
            observations: Observations on which the action was chosen, [*shape] each.
            action: The action.
            reward: The agent's reward.
            group: Group of the agent; 0 = none.
            group_reward: The group's reward.

        Raises:
            BadDemonstration: The unfinished episodes are too large.
        """
        episode = self._open.setdefault(agent, _Episode())
        episode.group = group
        self._add(agent, episode, observations, action)
        episode.reward, episode.group_reward = reward, group_reward
        episode.total += reward + group_reward
        if self._open_bytes > MAX_OPEN_BYTES:
            raise BadDemonstration(
                self.path,
                f"{len(self._open)} unfinished episodes take {self._open_bytes} bytes, and at most "
                f"{MAX_OPEN_BYTES} are kept; record fewer environments at a time",
            )

    def end(self, agent: int, observations: Sequence[NDArray[Any]], *, interrupted: bool) -> None:
        """Ends an agent's episode and writes it; does nothing if it took no step.

        Args:
            agent: The agent's number.
            observations: The last observations, [*shape] each.
            interrupted: Whether the episode was ended from outside.

        Raises:
            BadDemonstration: The file cannot be written; it keeps the earlier episodes.
        """
        episode = self._open.get(agent)
        if episode is None:
            return
        self._add(agent, episode, observations, None, interrupted=interrupted)
        self.drop(agent)
        self._append(b"".join(episode.records))
        self._records += len(episode.records)
        self.steps += len(episode.records) - 1
        self.episodes += 1
        self.returns.append(episode.total)
        self._write(self._head(), 0)

    def drop(self, agent: int) -> None:
        """Forgets an agent's episode."""
        episode = self._open.pop(agent, None)
        if episode is not None:
            self._open_bytes -= episode.size_bytes

    def close(self) -> None:
        """Closes the file; unfinished episodes are not in it."""
        self._open.clear()
        self._stream.close()

    def _add(
        self,
        agent: int,
        episode: _Episode,
        observations: Sequence[NDArray[Any]],
        action: Action | None,
        *,
        interrupted: bool = False,
    ) -> None:
        info = AgentInfoProto(
            reward=episode.reward,
            group_reward=episode.group_reward,
            group_id=episode.group,
            done=action is None,
            max_step_reached=interrupted,
            id=agent,
            observations=[to_message(*pair) for pair in zip(observations, self._spec.observations, strict=True)],
        )
        done = AgentActionProto()
        if action is not None:
            if action.masks is not None and not action.masks.all():
                info.action_mask.extend((action.masks == 0).tolist())
            if action.continuous is not None:
                done.continuous_actions.extend(self._units.unit(action.continuous[None])[0].tolist())
            if action.discrete is not None:
                done.discrete_actions.extend(action.discrete.tolist())
        record = delimited(AgentInfoActionPairProto(agent_info=info, action_info=done))
        episode.records.append(record)
        episode.size_bytes += len(record)
        self._open_bytes += len(record)

    def _head(self) -> bytes:
        mean = sum(self.returns) / len(self.returns) if self.returns else 0.0
        return head(self._spec.name, self._records, self.episodes, mean)

    def _append(self, data: bytes) -> None:
        """Appends data, or leaves the file unchanged."""
        try:
            self._write(data, self._end)
        except BadDemonstration:
            with suppress(OSError):
                self._stream.truncate(self._end)
            raise
        self._end += len(data)

    def _write(self, data: bytes, position: int) -> None:
        """Writes all bytes; an almost full disk may take only a part at a time."""
        left = memoryview(data)
        try:
            self._stream.seek(position)
            while left:
                left = left[self._stream.write(left) :]
        except OSError as error:
            raise _failed(self.path, error) from None


def _created(path: Path) -> FileIO:
    try:
        return path.open("xb", buffering=0)  # buffered data that a full disk refuses would fail again later
    except FileExistsError:
        raise BadDemonstration(path, "the file exists; choose another name, or remove it") from None
    except OSError as error:
        raise _failed(path, error) from None


def _failed(path: Path, error: OSError) -> BadDemonstration:
    return BadDemonstration(path, f"cannot be written: {error.strerror or error}")


def _brain(spec: BehaviorSpec, team: int) -> BrainParametersProto:
    action = spec.action
    return BrainParametersProto(
        brain_name=f"{spec.name}?team={team}",
        is_training=True,
        action_spec=ActionSpecProto(
            num_continuous_actions=action.continuous_size,
            num_discrete_actions=len(action.discrete_branches),
            discrete_branch_sizes=action.discrete_branches,
            action_descriptions=action.descriptions,
        ),
    )


class ActionUnits:
    """Converts the continuous actions of one behavior.

    Args:
        action: The actions of the behavior.

    Attributes:
        bounded: Axes with a unit, bool [n].
    """

    __slots__ = ("_half", "_high", "_low", "_middle", "bounded")

    def __init__(self, action: ActionSpec) -> None:
        size = action.continuous_size
        low = np.array(action.continuous_low or (-1.0,) * size, np.float64)
        high = np.array(action.continuous_high or (1.0,) * size, np.float64)
        self.bounded: NDArray[np.bool_] = np.isfinite(low) & np.isfinite(high)
        self._low, self._high = np.where(self.bounded, low, 0.0), np.where(self.bounded, high, 0.0)
        self._half = (self._high - self._low) / 2
        self._middle = self._low + self._half

    def unit(self, actions: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns environment actions [B, n] in units, float32; bounded axes never leave [-1, 1]."""
        half = np.where(self._half > 0, self._half, 1.0)
        units = np.clip((actions.astype(np.float64) - self._middle) / half, -1.0, 1.0)
        return np.where(self.bounded, units, actions).astype(np.float32)

    def actions(self, units: NDArray[np.float32]) -> NDArray[np.float32]:
        """Returns units [B, n] as environment actions, float32; inverts `unit` up to float32's rounding."""
        mapped = np.clip(units.astype(np.float64) * self._half + self._middle, self._low, self._high)
        return np.where(self.bounded, mapped, units).astype(np.float32)
