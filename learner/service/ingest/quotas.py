"""Divides the steps of an update among actors, so that the update has exactly the requested number.

The quota of an actor is a number of produced steps, cumulative over its session like credit. An actor that has used it
up ends its open segments, sends them and waits. The quotas of all actors and the steps that the learner already has add
up to one update, at any time:

    unsettled steps + sum of (quota - settled) over the actors = steps of the update

*settled* is what the session produced and its actor no longer holds (see `learner.service.ingest.credit`). Everything that
breaks the sum changes the quotas: an actor that is lost, joins or evaluates, or steps that are refused or given up.

Environments of one actor take their steps together. If no number of such steps adds up to the update, the quotas add up
to a little more, and a warning names a buffer size that fits.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import structlog

from learner.service.ingest.behaviors import MAX_CLAIMED_AGENTS, Behavior, BehaviorTable
from learner.service.ingest.session import Account, ActorSession

log = structlog.get_logger(__name__)

PATIENCE_SECONDS: Final = 5.0
"""Shortest time that actors wait for slower ones."""
RETRY_SECONDS: Final = 30.0
LONGEST_RETRY_SECONDS: Final = 600.0
"""Longest time without a quota for an actor that was late and sends nothing; the time doubles from `RETRY_SECONDS`."""
MAX_NAMED: Final = 10


def apportion(steps: int, sizes: Sequence[int]) -> list[int]:
    """Divides steps in proportion to sizes; each part is a multiple of its size.

    Args:
        steps: Number of steps, at least 0.
        sizes: Size of each part, at least 1; not empty.

    Returns:
        Steps of each part. They add up to ``steps``, or to the next larger sum that was found.
    """
    base, rest = divmod(steps, sum(sizes))
    turns = [base] * len(sizes)
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        if sizes[place] <= rest:
            turns[place] += 1
            rest -= sizes[place]
    if rest and not _exchange(rest, sizes, turns):
        # Every part no larger than the rest has had an extra turn already, so some larger part remains.
        turns[min((place for place in range(len(sizes)) if sizes[place] > rest), key=lambda place: sizes[place])] += 1
    return [turn * size for turn, size in zip(turns, sizes, strict=True)]


def _exchange(rest: int, sizes: Sequence[int], turns: list[int]) -> bool:
    """Adds the rest: gives turns to one part and, if necessary, takes some from another. Returns False if it cannot."""
    first = {size: place for place, size in reversed(list(enumerate(sizes)))}
    found: tuple[int, int, int, int] | None = None
    for more, into in first.items():
        for less, source in first.items():
            if more == less or rest % math.gcd(more, less):
                continue
            taken = next(count for count in range(more) if (rest + count * less) % more == 0)
            given = (rest + taken * less) // more
            if taken <= turns[source] and (found is None or given + taken < found[0]):
                found = given + taken, into, source, taken
    if found is None:
        return False
    _, into, source, taken = found
    turns[source] -= taken
    turns[into] += (rest + taken * sizes[source]) // sizes[into]
    return True


def fitting(steps: int, sizes: Iterable[int]) -> int:
    """Returns the smallest number of steps, at least ``steps``, that parts of these sizes can add up to."""
    unit = math.gcd(*sizes)
    return -(-steps // unit) * unit


@dataclass(slots=True)
class _Late:
    """A session that took much longer than the others.

    Attributes:
        settled_steps: Its settled steps when it was late; it counts as late until there are more.
        until: When it gets a quota again in any case, in monotonic seconds.
        seconds: Duration of this wait for a quota; doubles if it is late again before it sends anything.
    """

    settled_steps: int
    until: float
    seconds: float


@dataclass(slots=True)
class _Update:
    """The update for which steps of a behavior are collected.

    Attributes:
        begun_at: When its quotas were given out, in monotonic seconds.
        half_at: When half of the agents had used their quotas; None before.
        is_called_in: Whether late actors were asked to send what they have.
        late: Sessions without a quota because they were late, by id.
        told: Requested and possible steps in the last warning; zeros before the first.
    """

    begun_at: float = 0.0
    half_at: float | None = None
    is_called_in: bool = False
    late: dict[str, _Late] = field(default_factory=dict)
    told: tuple[int, int] = (0, 0)


_Members = Sequence[tuple[ActorSession, Account]]


class Quotas:
    """Keeps the quotas of all sessions. For the service's event loop alone.

    Args:
        behaviors: The declared behaviors.
        clock: Returns monotonic seconds.
    """

    def __init__(self, behaviors: BehaviorTable, clock: Callable[[], float] = time.monotonic) -> None:
        self._behaviors = behaviors
        self._clock = clock
        self._updates: dict[int, _Update] = {}

    def applies(self, behavior: Behavior) -> bool:
        """Returns whether actors of a behavior have quotas, or have had some; for others there is nothing to assign."""
        return behavior.index in self._updates or (behavior.training and behavior.queue.pace.update_steps > 0)

    def assign(
        self, behavior: Behavior, sessions: Iterable[ActorSession], idle: Collection[str] = ()
    ) -> list[ActorSession]:
        """Restores the sum of the quotas of a behavior.

        Args:
            behavior: The behavior.
            sessions: The connected sessions. The others have no quota, so that nothing waits for them.
            idle: Ids of sessions that take no steps for now.

        Returns:
            Sessions whose quota has changed.
        """
        return self._assign(behavior, sessions, idle, is_tick=False)

    def tick(
        self, behavior: Behavior, sessions: Iterable[ActorSession], idle: Collection[str] = ()
    ) -> list[ActorSession]:
        """Restores the sum, and ends the wait for actors that are much slower than the others, or hang.

        Late actors are asked to send what they have; at the next tick, the missing steps are shared out again. Call it
        about once a second.

        Args:
            behavior: The behavior.
            sessions: The connected sessions.
            idle: Ids of sessions that take no steps for now.

        Returns:
            Sessions whose quota has changed.
        """
        return self._assign(behavior, sessions, idle, is_tick=True)

    def forget(self, session: ActorSession) -> None:
        """Removes the quotas of a session that is no longer connected, or that returns to training."""
        for account in session.accounts.values():
            account.quota_through = None

    def _assign(
        self, behavior: Behavior, sessions: Iterable[ActorSession], idle: Collection[str], *, is_tick: bool
    ) -> list[ActorSession]:
        present = [(each, each.accounts[behavior.index]) for each in sessions if behavior.index in each.accounts]
        following = [(each, account) for each, account in present if account.follows_quota]
        before = [account.quota_through for _, account in following]
        steps = behavior.queue.pace.update_steps if behavior.training else 0
        if steps:
            update = self._updates.setdefault(behavior.index, _Update())
            if is_tick and update.is_called_in:
                update.is_called_in, update.begun_at, update.half_at = False, self._clock(), None
            members = self._members(update, following, idle)
            if members:
                self._share_out(behavior, steps, update, members)
            if is_tick and members:
                self._call_in(behavior, update, members)
        else:
            for _, account in following:
                account.quota_through = None
        pairs = zip(following, before, strict=True)
        return [session for (session, account), quota in pairs if account.quota_through != quota]

    def _members(self, update: _Update, following: _Members, idle: Collection[str]) -> _Members:
        """Returns the sessions that share the missing steps; the others wait."""
        members = []
        for session, account in following:
            if session.session_id in idle or self._is_late(update, session, account):
                account.quota_through = account.step_share.settled
            else:
                members.append((session, account))
        return members

    def _is_late(self, update: _Update, session: ActorSession, account: Account) -> bool:
        late = update.late.get(session.session_id)
        if late is None:
            return False
        if late.settled_steps != account.step_share.settled:
            del update.late[session.session_id]
            return False
        return self._clock() < late.until

    def _share_out(self, behavior: Behavior, steps: int, update: _Update, members: _Members) -> None:
        # Turns that do not divide evenly go to the accounts that had the fewest.
        members = sorted(members, key=lambda member: _turns(member[1]))
        accounts = [account for _, account in members]
        sizes, principals = [_size(account) for account in accounts], [session.principal for session, _ in members]
        has_joined = any(account.quota_through is None for account in accounts)
        if update.is_called_in:
            for account in accounts:
                if account.quota_through is None:
                    account.quota_through = account.step_share.settled
            return
        missing_steps = max(0, steps - self._behaviors.unsettled_steps(behavior))
        granted_steps = sum(map(_open, accounts))
        if missing_steps and not granted_steps:
            update.begun_at, update.half_at = self._clock(), None
            self._check_fit(behavior, steps, sizes, update)
        if has_joined or granted_steps - missing_steps >= max(sizes):
            _give(accounts, _divided(missing_steps, principals, sizes))
        elif missing_steps > granted_steps:
            more = _divided(missing_steps - granted_steps, principals, sizes)
            _give(accounts, [_open(account) + extra for account, extra in zip(accounts, more, strict=True)])

    def _call_in(self, behavior: Behavior, update: _Update, members: _Members) -> None:
        """Asks late sessions to send what they have, once the others have waited long enough."""
        late = [(session, account) for session, account in members if _open(account)]
        agents, late_agents = (sum(account.agents for _, account in group) for group in (members, late))
        if not late or 2 * late_agents > agents:
            update.half_at = None
            return
        now = self._clock()
        if update.half_at is None:
            update.half_at = now
        waited_seconds = now - update.half_at
        if waited_seconds < max(PATIENCE_SECONDS, update.half_at - update.begun_at):
            return
        update.is_called_in = True
        for session, account in late:
            settled_steps = account.quota_through = account.step_share.settled
            former = update.late.get(session.session_id)
            seconds = RETRY_SECONDS if former is None else min(2 * former.seconds, LONGEST_RETRY_SECONDS)
            update.late[session.session_id] = _Late(settled_steps, now + seconds, seconds)
        log.info(
            "actors_are_late",
            behavior=behavior.name,
            actors=", ".join(session.actor_name for session, _ in late[:MAX_NAMED]),
            late=len(late),
            waited_seconds=round(waited_seconds, 1),
            consequence="the others take the steps that are missing",
        )

    def _check_fit(self, behavior: Behavior, steps: int, sizes: Sequence[int], update: _Update) -> None:
        fits = fitting(steps, sizes)
        told = (steps, fits)
        if fits == steps or told == update.told:
            return
        update.told = told
        log.warning(
            "buffer_size_does_not_fit",
            behavior=behavior.name,
            buffer_size=steps,
            environments=sum(sizes),
            update_steps=fits,
            hint=f"updates have up to {fits} steps, since the environments of an actor take their steps together: set "
            f"buffer_size to {fits}",
        )


def _size(account: Account) -> int:
    """Returns the number of environments that step together, as far as the claim is credible; see `MAX_CLAIMED_AGENTS`."""
    return max(1, min(account.agents, max(MAX_CLAIMED_AGENTS, account.received_steps)))


def _divided(steps: int, principals: Sequence[str], sizes: Sequence[int]) -> list[int]:
    """Divides steps in proportion to sizes; of several principals, none gets more than half."""
    of_principal: Counter[str] = Counter()
    for principal, size in zip(principals, sizes, strict=True):
        of_principal[principal] += size
    largest, agents = of_principal.most_common(1)[0]
    if len(of_principal) == 1 or 2 * agents <= of_principal.total():
        return apportion(steps, sizes)
    found = [0] * len(sizes)
    for is_largest in (False, True):
        places = [place for place, principal in enumerate(principals) if (principal == largest) is is_largest]
        share = max(0, steps - sum(found)) if is_largest else steps - steps // 2
        for place, part in zip(places, apportion(share, [sizes[place] for place in places]), strict=True):
            found[place] = part
    return found


def _open(account: Account) -> int:
    """Returns the steps of a quota that have not been received yet."""
    return 0 if account.quota_through is None else max(0, account.quota_through - account.step_share.settled)


def _turns(account: Account) -> float:
    """Returns the settled steps of each of an account's environments."""
    return account.step_share.settled / max(1, account.agents)


def _give(accounts: Sequence[Account], steps: Sequence[int]) -> None:
    for account, more in zip(accounts, steps, strict=True):
        account.quota_through = account.step_share.settled + more
