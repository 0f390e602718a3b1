"""Records of finished episodes, one at a time: of agents that come and go, and of evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import Purpose, SegmentEnd

MAX_INFO_COLUMNS: Final = 64
"""A chunk may have 256 columns, of which 64 observations take 128."""
LARGEST_RETURN: Final = float(np.finfo(np.float32).max)
"""The learner takes no larger one."""
_COLUMNS: Final = (
    ("agent", np.uint64),
    ("env", np.uint32),
    ("episode", np.uint64),
    ("return", np.float32),
    ("group_return", np.float32),
    ("length", np.uint32),
    ("end", np.uint8),
    ("last_reward", np.float32),
    ("last_group_reward", np.float32),
    ("first_version", np.uint64),
    ("last_version", np.uint64),
    ("settings_revision", np.uint64),
)
"""Names and types as trajectory.proto has them, in the order of `EpisodeRecord`."""
_COLUMN_BYTES: Final = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)
_EVALUATION_BYTES: Final = _COLUMN_BYTES + 8 + 8 + 1
"""With seed, assignment and purpose."""
_OF_GROUPS: Final = ("group_return", "last_group_reward")
_NO_INFOS: Final[Mapping[str, float]] = MappingProxyType({})


class EpisodeRecord(NamedTuple):
    """The record of one finished episode.

    Attributes:
        agent: Number of the agent.
        env: Number of the environment.
        episode: Number of the episode, unique in the session.
        total: Sum of the agent's own rewards.
        group_total: Sum of its group's rewards.
        length: Steps.
        end: TERMINATED or TRUNCATED.
        last_reward: Own reward of the last step.
        last_group_reward: Group's reward of the last step.
        first_version: Version that chose the first action.
        last_version: Version that chose the last one.
        settings_revision: Of the environment's settings when the episode began.
        seed: That the environment began with; 0 if it is not known.
        infos: Numbers that the environment reported at the end.
    """

    agent: int
    env: int
    episode: int
    total: float
    group_total: float
    length: int
    end: SegmentEnd
    last_reward: float
    last_group_reward: float
    first_version: int
    last_version: int
    settings_revision: int
    seed: int = 0
    infos: Mapping[str, float] = _NO_INFOS

    @property
    def is_finite(self) -> bool:
        """True if the learner can take it."""
        return (
            abs(self.total) <= LARGEST_RETURN
            and abs(self.group_total) <= LARGEST_RETURN
            and abs(self.last_reward) <= LARGEST_RETURN
        )


@dataclass(frozen=True, slots=True)
class EpisodeRecords:
    """Records of training or of an evaluation, for `ChunkBuilder`.

    Attributes:
        records: At least one.
        grouped: Whether the behavior has groups; else columns about them are left out where they are all 0.
        assignment: That asked for the evaluation; None in training. Seeds and infos are those of evaluations: the
            simulators whose training is recorded so report numbers as statistics.
    """

    records: Sequence[EpisodeRecord]
    grouped: bool
    assignment: int | None = None

    def __len__(self) -> int:
        return len(self.records)

    @property
    def info_names(self) -> list[str]:
        """Names of the numbers that become columns."""
        return [] if self.assignment is None else info_names([record.infos for record in self.records])

    @property
    def column_bytes(self) -> int:
        """Of the columns that every record has, one row."""
        return _COLUMN_BYTES if self.assignment is None else _EVALUATION_BYTES

    def part(self, rows: slice) -> "EpisodeRecords":
        """Returns some of the records."""
        return replace(self, records=self.records[rows])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns."""
        values = zip(*(record[: len(_COLUMNS)] for record in self.records), strict=True)
        columns: dict[str, NDArray[Any]] = {
            f"episode/{name}": np.array(row, kind) for (name, kind), row in zip(_COLUMNS, values, strict=True)
        }
        if not (self.grouped or any(columns[f"episode/{name}"].any() for name in _OF_GROUPS)):
            for name in _OF_GROUPS:
                del columns[f"episode/{name}"]
        if self.assignment is None:
            return columns
        columns["episode/seed"] = np.array([record.seed for record in self.records], np.uint64)
        columns["episode/assignment"] = np.full(len(self), self.assignment, np.uint64)
        columns["episode/purpose"] = np.full(len(self), Purpose.EVALUATE, np.uint8)
        return columns | info_columns([record.infos for record in self.records])


def info_names(infos: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the names of the numbers of episodes that become columns."""
    return sorted({name for info in infos for name in info})[:MAX_INFO_COLUMNS]


def info_columns(infos: Sequence[Mapping[str, float]]) -> dict[str, NDArray[Any]]:
    """Returns the `info/` columns of episodes, float32; NaN where an episode has no such number."""
    with np.errstate(over="ignore"):  # beyond float32 is infinite, and infos may be that
        return {
            f"info/{name}": np.array([info.get(name, np.nan) for info in infos], np.float32)
            for name in info_names(infos)
        }
