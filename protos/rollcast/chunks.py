"""A chunk of experience as arrays."""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from numpy.typing import NDArray

from rollcast.enums import ColumnRole

_NUMBER_BYTES = 64
"""Bytes of the numbers and the framing of a game record."""


class GameResult(IntEnum):
    """Outcome of a game for one seat, the values of `episode/result`; see trajectory.proto."""

    LOST = -1
    DRAWN = 0
    WON = 1
    UNKNOWN = 127


@dataclass(frozen=True, slots=True)
class GameRecord:
    """The moves of a finished game in a match; see trajectory.proto.

    Attributes:
        match: Number of the match.
        game: Name of the game.
        first_team: The team that moved first.
        result: Result for the first mover.
        moves: All moves in the notation of the game.
    """

    match: int
    game: str
    first_team: int
    result: GameResult
    moves: tuple[str, ...]

    @property
    def most_bytes(self) -> int:
        """An upper bound of its encoded size in bytes."""
        return sum(map(len, self.moves)) + len(self.moves) + len(self.game) + _NUMBER_BYTES


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Segments of one behavior id; see trajectory.proto.

    Attributes:
        sequence: Number in the session, from 1.
        generation: Generation of the policies that acted.
        behavior_index: The learner's number of the behavior.
        team: The team of the behavior id.
        base_version: A row's version is base_version + its version_offset.
        produced_steps: Steps produced in the session until sealing.
        discarded: Steps discarded in the session, by reason.
        ghost_steps: Ghost steps in the session.
        age_seconds: Age of the oldest step at sealing.
        segments: Number of segments, S.
        rows: Number of rows, N.
        episodes: Number of episode records.
        agents: Number of agents that act at present.
        columns: Arrays by name, each `[rows of its role, ...]`.
        roles: Role of each column.
        stat_keys: Keys that `stat/key` indexes.
        opponents: Names that `episode/opponent` indexes.
        lockstep_round: The round of lock-step that this chunk completes; 0 = none.
        game_record: The newest finished game of a match; None = not told.
    """

    sequence: int = 0
    generation: int = 0
    behavior_index: int = 0
    team: int = 0
    base_version: int = 0
    produced_steps: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    ghost_steps: int = 0
    age_seconds: float = 0.0
    segments: int = 0
    rows: int = 0
    episodes: int = 0
    agents: int = 0
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    roles: dict[str, ColumnRole] = field(default_factory=dict)
    stat_keys: tuple[str, ...] = ()
    opponents: tuple[str, ...] = ()
    lockstep_round: int = 0
    game_record: GameRecord | None = None
