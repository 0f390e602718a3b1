"""A chunk of experience as arrays."""

from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from rollcast.enums import ColumnRole


@dataclass(slots=True, kw_only=True)
class Chunk:
    """Many segments of one behavior id; see trajectory.proto.

    Attributes:
        sequence: per session, from 1.
        generation: of the policies that acted.
        behavior_index: the behavior.
        team: the team of the behavior id.
        base_version: a row acted under base_version + its version_offset.
        produced_steps: cumulative over the session, at sealing.
        discarded: cumulative steps by reason.
        ghost_steps: cumulative.
        age_seconds: of the oldest step, at sealing.
        segments: S.
        rows: N.
        episodes: number of episode records.
        agents: agents that act at present.
        columns: arrays by name, each `[rows of its role, ...]`.
        roles: role of each column.
        stat_keys: what `stat/key` points to.
        opponents: what `episode/opponent` points to.
        lockstep_round: the round of lock-step that is complete with this chunk; 0 = none is.
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
