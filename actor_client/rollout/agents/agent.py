"""One agent: its running episode, its open segment, and the row that is not complete yet; and the group it is in."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from rollcast.enums import GroupEnd, SegmentEnd

from actor_client.rollout.agents.rows import ClosedSegment
from actor_client.rollout.episodes import EpisodeRecord

_ID_BITS: Final = 32
_ID_MASK: Final = 2**32 - 1


def unique_number(env: int, identity: int) -> int:
    """Returns a number of an agent or group that is unique over environments.

    Args:
        env: Number of the environment, below 2^32.
        identity: Its id there, an int32.
    """
    return (env << _ID_BITS) | (identity & _ID_MASK)


@dataclass(slots=True, eq=False)
class Group:
    """One episode of a group of agents that share rewards; it is over when no agent is in it any more.

    Attributes:
        env: Number of the environment.
        identity: Its id there; not 0.
        episode: Number of the group's episode, unique in the session.
        members: Agents whose episodes run, in the order in which they came.
        held: Segments of mates whose episodes ended before the group's; they wait for those of the others.
    """

    env: int
    identity: int
    episode: int
    members: dict[Agent, None] = field(default_factory=dict)
    held: list[ClosedSegment] = field(default_factory=list)
    _message: int = -1
    _step: int = -1

    @property
    def number(self) -> int:
        """Number of the group, unique over environments."""
        return unique_number(self.env, self.identity)

    def step(self, message: int) -> int:
        """Returns how many messages there were before in which any of the agents asked: it aligns rows of mates.

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

    An agent *waits* after it has asked and is *in flight* after it was answered; its pending row has what it saw,
    and what it did as soon as it is in flight. The row is complete when the agent shows up again.

    Attributes:
        env: Number of the environment.
        number: Number of the agent, unique over environments.
        episode: Number of its episode.
        settings_revision: Of the environment's settings.
        rows: Complete rows of the open segment, in the pool.
        pending: The row that is not complete.
        ticket: What `act` will call it.
        in_flight: Whether it was answered.
        void: Why the pending row must not be recorded, a word of the books; empty if it may.
        steps: Of the episode.
        oldest: Version that chose the first action of the open segment.
        version: Version that chose the last action.
        first_version: Version that chose the first action of the episode; None before it.
        group: What it is in, if anything.
        unusable: Whether the return is not known any more.
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
    _total: float = 0.0
    _group_total: float = 0.0
    _last_reward: float = 0.0
    _last_group_reward: float = 0.0

    def answered(self, version: int) -> None:
        """The agent was told what to do."""
        self.in_flight = True
        self.version = version
        if self.first_version is None:
            self.first_version = version

    def complete(self, reward: float, group_reward: float) -> str:
        """Completes the pending row, and adds it to the open segment unless it is void; returns why it is void."""
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
        """Versions of another generation compare with nothing: what is in flight is void, the episode goes on.

        Args:
            version: Of the first policy of the new generation.
            reason: Why rows of the old one are not recorded, a word of the books.
        """
        if self.in_flight:
            self.void = reason
        if self.first_version is not None:
            self.first_version = self.version = version

    def close(self, final: int, end: SegmentEnd, group_end: GroupEnd = GroupEnd.CONTINUES) -> ClosedSegment:
        """Ends the open segment, which has rows.

        Args:
            final: The row of the pool that holds what was seen after the last of them.
            end: How it ends.
            group_end: How the group stands then.
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
            group_end,
            self.oldest,
        )

    def record(self, end: SegmentEnd) -> EpisodeRecord | None:
        """Returns what the episode came to; None if that is not known, or beyond what the learner takes."""
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
        )
        return record if record.is_finite else None
