"""Records of finished episodes of agents that come and go, and of evaluations."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from rollcast.chunks import GameRecord, GameResult
from rollcast.enums import AssignmentRole, GroupEnd, Purpose, SegmentEnd

from actor_client.rollout.assignment import Seat

MAX_INFO_COLUMNS: Final = 64
"""Most `info/` columns: a chunk may have 256 columns, of which 64 observations take 128."""
LARGEST_RETURN: Final = float(np.finfo(np.float32).max)
"""Largest return that the learner accepts."""
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
"""Names and types as in trajectory.proto, in the order of `EpisodeRecord`."""
_COLUMN_BYTES: Final = sum(np.dtype(kind).itemsize for _, kind in _COLUMNS)
_EVALUATION_BYTES: Final = _COLUMN_BYTES + 8 + 8 + 1
"""Bytes with seed, assignment and purpose."""
UNKNOWN: Final = int(GameResult.UNKNOWN)
_OF_GROUPS: Final = ("group_return", "last_group_reward")
_NO_INFOS: Final[Mapping[str, float]] = MappingProxyType({})


_MATCH_COLUMNS: Final = (
    ("match", np.uint64),
    ("role", np.uint8),
    ("result", np.int8),
    ("team", np.int32),
    ("opponent", np.int32),
    ("opponent_generation", np.uint64),
    ("opponent_version", np.uint64),
    ("group", np.uint64),
    ("group_episode", np.uint64),
    ("group_end", np.uint8),
)
"""Names and types of the columns of matches."""
_MATCH_BYTES: Final = sum(np.dtype(kind).itemsize for _, kind in _MATCH_COLUMNS)
_NO_SEAT: Final = Seat(match=0, team=0)


class FinishedGame(Protocol):
    """A finished game of two players whose moves are known."""

    def record(self, match: int) -> GameRecord | None:
        """Returns the record of the game; None if it is beyond the limits of records.

        Args:
            match: Number of the match in which it was played.
        """


class EpisodeRecord(NamedTuple):
    """The record of one finished episode.

    Attributes:
        agent: Number of the agent.
        env: Number of the environment.
        episode: Number of the episode, unique in the session.
        total: Sum of the agent's own rewards.
        group_total: Sum of its group's rewards.
        length: Number of steps.
        end: TERMINATED or TRUNCATED.
        last_reward: The agent's reward of the last step.
        last_group_reward: The group's reward of the last step.
        first_version: Version that chose the first action.
        last_version: Version that chose the last action.
        settings_revision: Revision of the environment's settings when the episode began.
        seed: Seed of the environment; 0 if unknown.
        infos: Numbers that the environment reported at the end.
        seat: The part in a match in which the episode began; None outside of matches.
        result: Result of the game as the environment says it, a `GameResult`; UNKNOWN if it says none.
        group: Number of the agent's group; 0 = none.
        group_episode: Number of the group's episode; 0 = none.
        group_end: How the group's episode ended with this one; CONTINUES if mates are left.
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
    seat: Seat | None = None
    result: int = UNKNOWN
    group: int = 0
    group_episode: int = 0
    group_end: GroupEnd = GroupEnd.CONTINUES

    @property
    def game_result(self) -> int:
        """The result: what the environment says, else the sign of the last reward plus the last group reward."""
        if self.result != UNKNOWN:
            return self.result
        last = self.last_reward + self.last_group_reward
        return (last > 0) - (last < 0)

    @property
    def is_finite(self) -> bool:
        """True if the learner accepts its return."""
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
        grouped: Whether the behavior has groups; otherwise group columns of zeros are left out.
        assignment: Number of the evaluation's assignment; None in training. Only evaluations have seeds and infos,
            because in training these simulators report numbers as statistics.
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
        """Bytes per row of the columns that every record has."""
        match_bytes = _MATCH_BYTES if self._has_matches else 0
        return match_bytes + (_COLUMN_BYTES if self.assignment is None else _EVALUATION_BYTES)

    @property
    def opponents(self) -> tuple[str, ...]:
        """Behavior ids of opponents, which `episode/opponent` indexes."""
        found = (record.seat.opponent for record in self.records if record.seat is not None)
        return tuple(dict.fromkeys(name for name in found if name))

    @property
    def _has_matches(self) -> bool:
        return any(record.seat is not None for record in self.records)

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
        if self._has_matches:
            columns |= self._of_matches()
        if self.assignment is None:
            return columns
        columns["episode/seed"] = np.array([record.seed for record in self.records], np.uint64)
        columns["episode/assignment"] = np.full(len(self), self.assignment, np.uint64)
        columns["episode/purpose"] = np.full(len(self), Purpose.EVALUATE, np.uint8)
        return columns | info_columns([record.infos for record in self.records])

    def _of_matches(self) -> dict[str, NDArray[Any]]:
        """Returns the columns of matches; episodes outside of matches have no match and no result."""
        names = self.opponents
        rows = []
        for record in self.records:
            seat = record.seat or _NO_SEAT
            policy = seat.opponent_policy
            rows.append(
                (
                    seat.match,
                    AssignmentRole.OPPONENT if seat.is_opponent else AssignmentRole.LEARN,
                    record.game_result if seat.match else UNKNOWN,
                    seat.team,
                    names.index(seat.opponent) if seat.opponent else -1,
                    0 if policy is None else policy.generation,
                    0 if policy is None else policy.version,
                    record.group,
                    record.group_episode,
                    record.group_end,
                )
            )
        return {
            f"episode/{name}": np.array(values, kind)
            for (name, kind), values in zip(_MATCH_COLUMNS, zip(*rows, strict=True), strict=True)
        }


def info_names(infos: Sequence[Mapping[str, float]]) -> list[str]:
    """Returns the names of the numbers of episodes that become columns."""
    return sorted({name for info in infos for name in info})[:MAX_INFO_COLUMNS]


def info_columns(infos: Sequence[Mapping[str, float]]) -> dict[str, NDArray[Any]]:
    """Returns the `info/` columns of episodes, float32; NaN where an episode has no such number."""
    with np.errstate(over="ignore"):  # values beyond float32 become infinite, which infos may be
        return {
            f"info/{name}": np.array([info.get(name, np.nan) for info in infos], np.float32)
            for name in info_names(infos)
        }
