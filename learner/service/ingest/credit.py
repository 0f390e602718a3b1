"""Decides how far actors may run ahead: pure functions for steps and for bytes.

A grant is absolute and cumulative over a session, and never falls. It has three parts:

    granted = settled + allowance + reserved

*settled* is the amount that the session produced and its actor no longer holds: received, or given up by the actor.
The *allowance* covers the current segments of its agents; without it, open segments that cannot be completed would
fill the limit for good. The rest is *reserved* from the limit that all sessions share.

Above the limit nothing is granted, not even the allowance: each chunk sent would renew it, and actors would run ahead
without end. This cannot block a run, because a limit exceeds what a trainer needs for its next turn, and the turn makes
room. So the unsettled amount, at the learner and at its actors, stays within the limit plus one allowance per session.
What others have above their equal shares does not count against a session (`learner.service.ingest.queue`), so that none is
shut out by a hoard. An allowance is limited to what updates can use soon, whatever number of agents is claimed.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_GRANT = 2**62
"""Far below the wire's uint64 maximum; as a limit in bytes it means no limit."""


@dataclass(frozen=True, slots=True)
class Share:
    """One session's credit with one behavior, in steps or in bytes.

    Attributes:
        settled: Amount produced and no longer held by the actor, cumulative.
        allowance: Amount that may be open in addition to the session's part of the limit.
        granted: Last grant, cumulative.
    """

    settled: int
    allowance: int
    granted: int

    @property
    def reserved(self) -> int:
        """Amount that the session may still use of the common limit."""
        return max(0, self.granted - self.settled - self.allowance)


@dataclass(frozen=True, slots=True)
class Common:
    """Credit that all sessions of one behavior share, in steps or in bytes.

    Attributes:
        limit: Most that may be unsettled or reserved.
        unsettled: Amount that waits for the trainer, or is held by it.
        reserved: Sum of `Share.reserved` over all sessions.
        sessions: Number of sessions.
    """

    limit: int
    unsettled: int
    reserved: int
    sessions: int

    @property
    def fair(self) -> int:
        """Equal share of each session in the limit."""
        return max(0, self.limit - self.unsettled) // max(1, self.sessions)


def step_allowance(agents: int, time_horizon: int) -> int:
    """Returns the steps that an actor needs to finish its segments.

    Before a vector step that credit forbids, none of `agents` open segments has more than `time_horizon - 1` steps (a
    longer one would have been closed and sent), and the step adds one to each: `agents * time_horizon` always suffice.
    One step more for each agent lets new segments begin while closed ones are on their way.
    """
    return max(1, agents) * (time_horizon + 1)


def grant(common: Common, share: Share) -> int:
    """Returns the new cumulative grant of a session.

    The grant never falls, and below the limit it is at least settled + allowance. Beyond that it grows towards a fair
    reserve by at most the free amount, so a grant never takes unsettled + reserved past the limit.
    """
    if common.unsettled > common.limit:
        return min(MAX_GRANT, share.granted)
    free = max(0, common.limit - common.unsettled - common.reserved)
    extra = min(free, max(0, common.fair - share.reserved))
    return min(MAX_GRANT, max(share.granted, share.settled + share.allowance) + extra)


def is_worth_sending(common: Common, share: Share) -> bool:
    """Returns whether a grant deserves a separate message.

    Acks carry grants, so small growth waits for the next ack. A session with nothing in reserve may be waiting, and
    receives any credit there is.
    """
    growth = grant(common, share) - share.granted
    quantum = 1 if share.reserved == 0 else max(1, common.fair // 4)
    return growth >= quantum
