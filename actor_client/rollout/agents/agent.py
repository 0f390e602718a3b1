"""One agent: its running episode, its open segment, and the row that is not complete yet; and the group it is in."""

from __future__ import annotations

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


class Group:
    """One episode of a group of agents that share rewards; it is over when no agent is in it any more.

    Args:
        env: Number of the environment.
        identity: Its id there.
        episode: Number of the group's episode.

    Attributes:
        env: Number of the environment.
        identity: Its id there; not 0.
        number: Of the group, unique over environments.
        episode: Of the group, unique in the session.
        members: Agents whose episodes run, in the order in which they came.
        held: Segments of mates whose episodes ended before the group's; they wait for those of the others.
    """

    __slots__ = ("_message", "_step", "env", "episode", "held", "identity", "members", "number")

    def __init__(self, env: int, identity: int, episode: int) -> None:
        self.env = env
        self.identity = identity
        self.number = unique_number(env, identity)
        self.episode = episode
        self.members: dict[Agent, None] = {}
        self.held: list[ClosedSegment] = []
        self._message = -1
        self._step = -1

    def step(self, message: int) -> int:
        """Returns how many messages there were before in which any of the agents asked: it aligns rows of mates.

        Args:
            message: A number that grows with each message.
        """
        if message != self._message:
            self._message = message
            self._step += 1
        return self._step


class Agent:
    """State of one agent.

    An agent *waits* after it has asked and is *in flight* after it was answered; its pending row has what it saw,
    and what it did as soon as it is in flight. The row is complete when the agent shows up again.

    Args:
        env: Number of the environment.
        identity: Its id there.
        episode: Number of its episode.
        settings_revision: Of the environment's settings.

    Attributes:
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

    __slots__ = (
        "_episode",
        "_group_total",
        "_last_group_reward",
        "_last_reward",
        "_number",
        "_settings_revision",
        "_total",
        "env",
        "first_version",
        "group",
        "in_flight",
        "oldest",
        "pending",
        "rows",
        "steps",
        "ticket",
        "unusable",
        "version",
        "void",
    )

    def __init__(self, env: int, identity: int, *, episode: int, settings_revision: int) -> None:
        self.env = env
        self._number = unique_number(env, identity)
        self._episode = episode
        self._settings_revision = settings_revision
        self.rows: list[int] = []
        self.pending = -1
        self.ticket = -1
        self.in_flight = False
        self.void = ""
        self.steps = 0
        self.oldest = 0
        self.version = 0
        self.first_version: int | None = None
        self.unusable = False
        self.group: Group | None = None
        self._total = 0.0
        self._group_total = 0.0
        self._last_reward = 0.0
        self._last_group_reward = 0.0

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
            self._number,
            self._episode,
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
            self._number,
            self.env,
            self._episode,
            self._total,
            self._group_total,
            self.steps,
            end,
            self._last_reward,
            self._last_group_reward,
            self.first_version or 0,
            self.version,
            self._settings_revision,
        )
        return record if record.is_finite else None
