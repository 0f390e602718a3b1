"""One agent: its running episode, open segment, pending row and group."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.rows import ClosedSegment
from actor_client.rollout.assignment import Seat
from actor_client.rollout.episodes import UNKNOWN, EpisodeRecord

_ID_BITS: Final = 32
_ID_MASK: Final = 2**32 - 1


def unique_number(env: int, identity: int) -> int:
    """Returns a number of an agent or group that is unique over environments.

    Args:
        env: Number of the environment, below 2^32.
        identity: The id of the agent or group in the environment, an int32.
    """
    return (env << _ID_BITS) | (identity & _ID_MASK)


@dataclass(slots=True, eq=False)
class Group:
    """One episode of a group of agents that share rewards; it ends when the group is empty.

    Attributes:
        env: Number of the environment.
        identity: Its id in the environment; not 0.
        episode: Number of the group's episode, unique in the session.
        members: Agents with running episodes, in the order in which they joined.
        held: Segments of mates whose episodes ended before the group's; they wait for the other segments.
        end: How its episode ended; CONTINUES until then.
    """

    env: int
    identity: int
    episode: int
    members: dict[Agent, None] = field(default_factory=dict)
    held: list[ClosedSegment] = field(default_factory=list)
    end: GroupEnd = GroupEnd.CONTINUES
    _message: int = -1
    _step: int = -1

    @property
    def number(self) -> int:
        """Number of the group, unique over environments."""
        return unique_number(self.env, self.identity)

    def step(self, message: int) -> int:
        """Returns the number of earlier messages in which any member asked; it aligns rows of mates.

        Args:
            message: A number that grows with each message.
        """
        if message != self._message:
            self._message = message
            self._step += 1
        return self._step


@dataclass(slots=True, eq=False)
class Agent:
    """State of one agent.

    An agent *waits* after it has asked and is *in flight* after it was answered. Its pending row holds the observation
    and, once the agent is in flight, the action. The row is complete when the agent reports again.

    Attributes:
        env: Number of the environment.
        number: Number of the agent, unique over environments.
        episode: Number of its episode.
        settings_revision: Revision of the environment's settings.
        rows: Complete rows of the open segment, in the pool.
        pending: The incomplete row.
        ticket: Its slot for `act`.
        in_flight: Whether it was answered.
        void: The reason in the books why the pending row must not be recorded; empty if it may.
        steps: Steps of the episode.
        oldest: Version that chose the first action of the open segment.
        version: Version that chose the last action.
        first_version: Version that chose the first action of the episode; None before it.
        group: Its group; None without one.
        unusable: Whether the return is no longer known.
        seat: The part in a match in which its episode began; None outside of matches.
    """

    env: int
    number: int
    episode: int
    settings_revision: int
    rows: list[int] = field(default_factory=list)
    pending: int = -1
    ticket: int = -1
    in_flight: bool = False
    void: str = ""
    steps: int = 0
    oldest: int = 0
    version: int = 0
    first_version: int | None = None
    group: Group | None = None
    unusable: bool = False
    seat: Seat | None = None
    _total: float = 0.0
    _group_total: float = 0.0
    _last_reward: float = 0.0
    _last_group_reward: float = 0.0

    def answered(self, version: int) -> None:
        """Notes that the agent was answered."""
        self.in_flight = True
        self.version = version
        if self.first_version is None:
            self.first_version = version

    def complete(self, reward: float, group_reward: float) -> str:
        """Completes the pending row and, unless it is void, adds it to the open segment; returns why it is void."""
        self.in_flight = False
        self.steps += 1
        self._total += reward
        self._group_total += group_reward
        self._last_reward = reward
        self._last_group_reward = group_reward
        void = self.void
        if void:
            self.void = ""
        else:
            if not self.rows:
                self.oldest = self.version
            self.rows.append(self.pending)
        return void

    def renew(self, version: int, reason: str) -> None:
        """Voids the row in flight, whose generation is not comparable with the new one; the episode continues.

        Args:
            version: Version of the first policy of the new generation.
            reason: The reason in the books why rows of the old generation are not recorded.
        """
        if self.in_flight:
            self.void = reason
        if self.first_version is not None:
            self.first_version = self.version = version

    def close(self, final: int, end: SegmentEnd) -> ClosedSegment:
        """Ends the open segment, which must have rows.

        Args:
            final: The pool row with the observation after its last row.
            end: How the segment ends.
        """
        rows, self.rows = self.rows, []
        group = self.group
        return ClosedSegment(
            rows,
            final,
            self.env,
            self.number,
            self.episode,
            self.steps - len(rows),
            end,
            0 if group is None else group.number,
            0 if group is None else group.episode,
            GroupEnd.CONTINUES if group is None else group.end,
            self.oldest,
        )

    def record(self, end: SegmentEnd, group: Group | None = None, result: int = UNKNOWN) -> EpisodeRecord | None:
        """Returns the episode's record; None if the return is unknown or too large for the learner.

        Args:
            end: How the episode ended.
            group: The group that it was in.
            result: Result of a game, as the environment says it.
        """
        if self.unusable:
            return None
        record = EpisodeRecord(
            self.number,
            self.env,
            self.episode,
            self._total,
            self._group_total,
            self.steps,
            end,
            self._last_reward,
            self._last_group_reward,
            self.first_version or 0,
            self.version,
            self.settings_revision,
            seat=self.seat,
            result=result,
            group=0 if group is None else group.number,
            group_episode=0 if group is None else group.episode,
            group_end=GroupEnd.CONTINUES if group is None else group.end,
        )
        return record if record.is_finite else None
