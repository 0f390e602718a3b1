"""How far actors may run ahead: pure functions, the same for steps and for bytes.

A grant is absolute and cumulative over a session, and never falls. It has three parts:

    granted = settled + allowance + reserved

*settled* is what the session produced and is off its hands: received, or given up by the actor. The *allowance* covers
the segments that its agents are in; without it, open segments that nobody can complete would fill the limit for good.
What lies above is *reserved* from the limit that all sessions share.

While the limit is passed nothing is granted, the allowance neither: what was sent would renew it with each chunk, and
actors would run ahead without end. Nobody is stuck by this, because a limit is more than what a trainer needs for its
next turn; the turn makes room. So what is unsettled, at the learner and at its actors, stays within the limit and one
allowance for each session.
"""

from __future__ import annotations

from dataclasses import dataclass

MAX_GRANT = 2**62
"""Stays well inside the wire's uint64; as a limit in bytes it means none."""


@dataclass(frozen=True, slots=True)
class Share:
    """What one session has of one behavior, in steps or in bytes.

    Attributes:
        settled: produced and off the actor's hands, cumulative.
        allowance: what it may have open beside its part of the limit.
        granted: the last grant, cumulative.
    """

    settled: int
    allowance: int
    granted: int

    @property
    def reserved(self) -> int:
        """What it may still use of the common limit."""
        return max(0, self.granted - self.settled - self.allowance)


@dataclass(frozen=True, slots=True)
class Common:
    """What all sessions share of one behavior, in steps or in bytes.

    Attributes:
        limit: how much may be unsettled or reserved.
        unsettled: waits for the trainer, or is held by it.
        reserved: sum of all sessions' `Share.reserved`.
        sessions: how many share.
    """

    limit: int
    unsettled: int
    reserved: int
    sessions: int

    @property
    def fair(self) -> int:
        """What each session would have in reserve if all had the same."""
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

    It is at least the old one, and while the limit is not passed at least settled + allowance. Above that it grows
    towards a fair reserve, by no more than what is free: so unsettled + reserved never passes the limit through a grant.
    """
    if common.unsettled > common.limit:
        return min(MAX_GRANT, share.granted)
    free = max(0, common.limit - common.unsettled - common.reserved)
    extra = min(free, max(0, common.fair - share.reserved))
    return min(MAX_GRANT, max(share.granted, share.settled + share.allowance) + extra)


def is_worth_sending(common: Common, share: Share) -> bool:
    """Says whether a grant is worth a message of its own.

    Acks carry grants anyway, so that small growth waits for the next ack. A session with nothing in reserve may be
    waiting, and gets whatever there is.
    """
    growth = grant(common, share) - share.granted
    quantum = 1 if share.reserved == 0 else max(1, common.fair // 4)
    return growth >= quantum
