"""Records of finished episodes of agents."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import SegmentEnd


class EpisodeRecord(NamedTuple):
    """What one episode came to.

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
_OF_GROUPS: Final = ("group_return", "last_group_reward")


@dataclass(frozen=True, slots=True)
class AgentEpisodes:
    """Records for `ChunkBuilder`.

    Attributes:
        records: At least one.
        grouped: Whether the behavior has groups; else columns about them are left out where they are all 0.
    """

    records: Sequence[EpisodeRecord]
    grouped: bool

    def __len__(self) -> int:
        return len(self.records)

    @property
    def info_names(self) -> list[str]:
        """None: numbers of such simulators travel as statistics."""
        return []

    @property
    def column_bytes(self) -> int:
        """Of all columns, one row."""
        return _COLUMN_BYTES

    def part(self, rows: slice) -> "AgentEpisodes":
        """Returns some of the records."""
        return AgentEpisodes(self.records[rows], self.grouped)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Returns the EPISODE columns."""
        values = zip(*self.records, strict=True)
        columns = {f"episode/{name}": np.array(row, kind) for (name, kind), row in zip(_COLUMNS, values, strict=True)}
        if not (self.grouped or any(columns[f"episode/{name}"].any() for name in _OF_GROUPS)):
            for name in _OF_GROUPS:
                del columns[f"episode/{name}"]
        return columns
