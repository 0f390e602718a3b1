"""The records of one demonstration file as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rollcast.demonstrations import Pairing
from rollcast.demonstrations.faults import BadDemonstration
from rollcast.demonstrations.framing import Record
from rollcast.demonstrations.pairing import Paired, Rows, Steps, align, pair
from rollcast.demonstrations.sensors import LARGEST, DemonstrationSensor
from rollcast.demonstrations.writing import ActionUnits
from rollcast.limits import MIB
from rollcast.specs import ActionSpec, BehaviorSpec
from rollcast.unity.communicator_objects.agent_pb2 import AgentActionProto
from rollcast.unity.masks import MaskReader
from rollcast.unity.sensors import BadSensorData

_NUMBERS = 5
"""Numbers of each record: the agent, two flags, two rewards."""


@dataclass(frozen=True, slots=True)
class Demonstration:
    """The N steps of one file, and the R moments that its agents observed (steps and ends).

    Attributes:
        path: The file.
        behavior: The behavior's name in the file.
        observations: One array per observation of the spec, [R, *shape] in its dtype.
        rows: The moment at which each step's action was chosen, int64 [N].
        next_rows: The moment after it, int64 [N]; the last one of an episode at its end.
        continuous: Actions in units (`rollcast.demonstrations.writing`), float32 [N, n]; None without axes.
        discrete: Choices, int32 [N, b]; None without branches.
        masks: Allowed choices, uint8 [N, sum of branches]; None if all always were.
        rewards: The agent's own rewards, float32 [N].
        group_rewards: Its group's rewards, float32 [N].
        terminated: The step ended the episode by itself, bool [N].
        truncated: The episode was ended from outside, bool [N].
        clipped: Number of actions that were outside [-1, 1] and have been clipped.
        unfinished: Decisions without a recorded outcome or action, as at the end of a file; they are no steps.
        paired: Where the file had the actions, and how that was found.
    """

    path: Path
    behavior: str
    observations: tuple[NDArray[Any], ...]
    rows: NDArray[np.int64]
    next_rows: NDArray[np.int64]
    continuous: NDArray[np.float32] | None
    discrete: NDArray[np.int32] | None
    masks: NDArray[np.uint8] | None
    rewards: NDArray[np.float32]
    group_rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    clipped: int
    unfinished: int
    paired: Paired

    @property
    def episodes(self) -> int:
        """Number of ended episodes."""
        return int(self.terminated.sum() + self.truncated.sum())


def row_bytes(spec: BehaviorSpec) -> int:
    """Returns the unpacked bytes of one record during reading: observations, mask, and numbers in float64."""
    seen = sum(observation.size_bytes for observation in spec.observations)
    return seen + spec.action.mask_size + 8 * (_NUMBERS + 1 + spec.action.factors)


class Collector:
    """Collects the records of one file.

    Args:
        path: The file.
        spec: Spec of the run's behavior, with the observations to read.
        max_bytes: Most bytes of all records.
        names: Names of all observations of the behavior. A file has all of them, or those of ``spec``.
        pairing: Where the actions are.
    """

    def __init__(self, path: Path, spec: BehaviorSpec, max_bytes: int, names: Sequence[str], pairing: Pairing) -> None:
        self._path = path
        self._pairing = pairing
        self._spec = spec
        self._read_names = [observation.name for observation in spec.observations]
        self._all_names = list(names)
        self._names: list[str] = []  # of the observations of a record; known from the first one
        self._max_rows = max(0, max_bytes) // max(1, row_bytes(spec))
        self._max_bytes = max_bytes
        self._sensors: list[DemonstrationSensor] = []
        self._masks = MaskReader(spec.action.discrete_branches)
        self._observed: list[list[NDArray[Any]]] = [[] for _ in spec.observations]
        self._allowed: list[NDArray[np.uint8] | None] = []
        self._is_masked = False
        self._numbers: list[NDArray[np.float64]] = []
        self._actions: list[NDArray[np.float64]] = []
        self._lacking: dict[int, int] = {}  # records without an action: row and position
        self._rows = 0

    def read(self, block: Sequence[Record]) -> None:
        """Adds some records."""
        self._rows += len(block)
        if self._rows > self._max_rows:
            raise BadDemonstration(
                self._path,
                f"its records take more than {self._max_bytes // MIB} MiB unpacked, at {row_bytes(self._spec)} "
                "bytes each; use fewer or shorter demonstrations",
                block[0].position,
            )
        if not self._names:
            lacks = len(block[0].pair.agent_info.observations) == len(self._read_names)
            self._names = self._read_names if lacks else self._all_names
        for record in block:
            self._check_count(record)
        if not self._sensors:
            self._sensors = self._first_sensors(block[0])
        positions = [self._names.index(name) for name in self._read_names]
        for place, (position, sensor) in enumerate(zip(positions, self._sensors, strict=True)):
            try:
                values = sensor.read([record.pair.agent_info.observations[position] for record in block])
            except BadSensorData as error:
                raise self._bad(
                    block[error.row], f"observation {self._spec.observations[place].name} {error}"
                ) from None
            self._observed[place].append(values)
        infos = [record.pair.agent_info for record in block]
        allowed, _ = self._masks.read(infos)
        self._is_masked |= allowed is not None
        self._allowed.append(allowed)
        self._numbers.append(
            np.array(
                [(info.id, info.done, info.max_step_reached, info.reward, info.group_reward) for info in infos],
                np.float64,
            )
        )
        self._check_rewards(block, self._numbers[-1][:, 3:])
        self._actions.append(np.array([self._action(record) for record in block], np.float64))
        lacking = np.flatnonzero(self._actions[-1][:, 0] == 0).tolist()
        self._lacking |= {self._rows - len(block) + row: block[row].position for row in lacking}

    def demonstration(self, behavior: str) -> Demonstration:
        """Returns the demonstration."""
        size = self._spec.action.continuous_size
        numbers = np.concatenate([np.empty((0, _NUMBERS)), *self._numbers])
        actions = np.concatenate([np.empty((0, 1 + self._spec.action.factors)), *self._actions])
        acted, values = actions[:, 0] > 0, actions[:, 1:]
        done = numbers[:, 1] > 0
        interrupted = numbers[:, 2] > 0
        observations = self._observations()
        steps = align(numbers[:, 0].astype(np.int64), done)
        self._check_lacking(steps)
        if self._pairing == "auto":
            paired = pair(steps, acted, values, self._spec.action.discrete_branches, observations)
        else:
            paired = Paired(late=self._pairing == "next_record", evidence="demo_pairing says so")
        action_rows = steps.next_rows if paired.late else steps.rows
        known = acted[action_rows]
        rows, after, chosen = steps.rows[known], steps.next_rows[known], values[action_rows[known]]
        continuous, clipped = self._in_units(chosen[:, :size])
        return Demonstration(
            path=self._path,
            behavior=behavior,
            observations=observations,
            rows=rows,
            next_rows=after,
            continuous=continuous if size else None,
            discrete=chosen[:, size:].astype(np.int32) if self._spec.action.discrete_branches else None,
            masks=self._masks_of(rows),
            rewards=numbers[after, 3].astype(np.float32),
            group_rewards=numbers[after, 4].astype(np.float32),
            terminated=done[after] & ~interrupted[after],
            truncated=done[after] & interrupted[after],
            clipped=clipped,
            unfinished=len(steps.lasts) + int((~known).sum()),
            paired=paired,
        )

    def _observations(self) -> tuple[NDArray[Any], ...]:
        """Joins the blocks, one observation after another, so that at most one is held twice."""
        joined = []
        for spec, blocks in zip(self._spec.observations, self._observed, strict=True):
            joined.append(np.concatenate(blocks) if blocks else np.empty((0, *spec.shape), spec.dtype))
            blocks.clear()
        return tuple(joined)

    def _masks_of(self, chosen: Rows) -> NDArray[np.uint8] | None:
        if not self._is_masked:
            return None
        size = self._spec.action.mask_size
        blocks = zip(self._allowed, self._numbers, strict=True)
        parts = [np.ones((len(rows), size), np.uint8) if allowed is None else allowed for allowed, rows in blocks]
        return np.concatenate(parts)[chosen]

    def _in_units(self, actions: NDArray[np.float64]) -> tuple[NDArray[np.float32], int]:
        """Returns continuous actions with the bounded axes in [-1, 1], and the number of those that were outside."""
        bounded = ActionUnits(self._spec.action).bounded
        outside = (np.abs(actions) > 1.0) & bounded
        return np.where(bounded, np.clip(actions, -1.0, 1.0), actions).astype(np.float32), int(outside.sum())

    def _first_sensors(self, record: Record) -> list[DemonstrationSensor]:
        observations = record.pair.agent_info.observations
        found = [observation.name for observation in observations]
        left_out = [name for name in found if name in self._all_names and name not in self._names]
        if left_out:
            raise self._bad(
                record,
                f"it has {', '.join(found)}; the run's behavior has {', '.join(self._all_names)}: it must have all",
            )
        sensors = []
        for spec in self._spec.observations:
            try:
                sensors.append(DemonstrationSensor(spec, observations[self._names.index(spec.name)]))
            except BadSensorData as error:
                raise self._bad(record, f"observation {spec.name} {error}") from None
        if found != self._names and sorted(found) == sorted(self._names):
            raise self._bad(
                record, f"its observations are in the order {', '.join(found)}; the run's are {', '.join(self._names)}"
            )
        return sensors

    def _check_count(self, record: Record) -> None:
        count = len(record.pair.agent_info.observations)
        if count != len(self._names):
            some = (
                f", of which {len(self._read_names)} are read" if len(self._read_names) < len(self._all_names) else ""
            )
            raise self._bad(
                record, f"the record has {count} observations; the run's behavior has {len(self._all_names)}{some}"
            )

    def _check_rewards(self, block: Sequence[Record], rewards: NDArray[np.float64]) -> None:
        fine = (np.abs(rewards) <= LARGEST).all(axis=1)  # false for NaN too
        if not fine.all():
            raise self._bad(block[int(fine.argmin())], f"a reward is not finite, or exceeds {LARGEST:g}")

    def _check_lacking(self, steps: Steps) -> None:
        """Checks that only the first and last records of episodes, and of the file, lack an action."""
        middle = set(np.intersect1d(steps.rows, steps.next_rows).tolist())
        for row, position in self._lacking.items():
            if row in middle:
                raise BadDemonstration(self._path, "the record has no action", position)

    def _action(self, record: Record) -> list[float]:
        try:
            return read_action(record.pair.action_info, self._spec.action)
        except BadAction as error:
            raise self._bad(record, str(error)) from None

    def _bad(self, record: Record, reason: str) -> BadDemonstration:
        return BadDemonstration(self._path, reason, record.position)


class BadAction(Exception):  # noqa: N818 - what came is bad, not what was done with it
    """A record's action cannot be used; the text gives the reason."""


def read_action(told: AgentActionProto, ours: ActionSpec) -> list[float]:
    """Returns whether a record has an action (1 or 0), then its axes and its choices, [1 + n + b].

    Files from before API version 1.3 have axes and choices in one field.

    Args:
        told: The record's action.
        ours: The actions of the run's behavior.

    Raises:
        BadAction: The action does not match the behavior.
    """
    size = ours.continuous_size
    axes: list[float] = list(told.continuous_actions)
    choices: list[float] = list(told.discrete_actions)
    if not axes and not choices:
        old = list(told.vector_actions_deprecated)
        axes, choices = old[:size], old[size:]
    if not axes and not choices:
        return [0.0] * (1 + ours.factors)
    if (len(axes), len(choices)) != (size, len(ours.discrete_branches)):
        raise BadAction(
            f"the record has {len(axes)} continuous and {len(choices)} discrete actions; the run's behavior has "
            f"{size} and {len(ours.discrete_branches)}"
        )
    for axis, value in enumerate(axes):
        if not abs(value) <= LARGEST:  # also true for NaN
            raise BadAction(f"continuous action {axis} is {value}; it must be finite and at most {LARGEST:g} in size")
    for branch, (value, count) in enumerate(zip(choices, ours.discrete_branches, strict=True)):
        if not 0 <= value < count or value != int(value):
            raise BadAction(f"discrete action {branch} is {value}; it must be a whole number below {count}")
    return [1.0, *axes, *choices]
