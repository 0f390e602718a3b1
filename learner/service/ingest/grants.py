"""Grants credit to all sessions by behavior: applies the pure rules of `learner.service.ingest.credit` to the accounts."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.credit import MAX_GRANT, Common, Share, grant, is_worth_sending
from learner.service.ingest.session import Account, ActorSession

UNTRAINED_STEPS: Final = 8192
"""Steps that an actor may run ahead with an untrained behavior; acks come at once, so this only covers the round trip.
"""


@dataclass(frozen=True, slots=True)
class Grant:
    """Credit of one session with one behavior; see Credit in trajectory.proto."""

    behavior_index: int
    steps_through: int
    bytes_through: int
    quota_through: int | None = None


class _Pool:
    """The reserve of all sessions of one behavior, updated share by share."""

    def __init__(self, members: Counter[str] | None = None) -> None:
        self._members: Counter[str] = Counter() if members is None else members
        self._reserved: dict[str, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._reserved)

    def sharers(self, principal: str) -> int:
        """Returns into how many parts the pool is divided for a session of a principal: all principals have equal parts."""
        return len(self._members) * self._members[principal]

    def update(self, session: ActorSession, reserved: int) -> None:
        known = self._reserved.get(session.session_id)
        if known is None:
            self._members[session.principal] += 1
        self.total += reserved - (known or 0)
        self._reserved[session.session_id] = reserved

    def remove(self, session: ActorSession) -> None:
        known = self._reserved.pop(session.session_id, None)
        if known is not None:
            self.total -= known
            self._members[session.principal] -= 1
            if not self._members[session.principal]:
                del self._members[session.principal]


@dataclass(slots=True)
class _Pools:
    steps: _Pool
    bytes: _Pool


class CreditAllocator:
    """Grants credit. For the service's event loop alone.

    Attributes:
        is_closed: True once the learner is about to stop and grants nothing more.
    """

    def __init__(self, behaviors: BehaviorTable) -> None:
        self.is_closed = False
        self._behaviors = behaviors
        self._pools: dict[int, _Pools] = {}
        self._suspended: set[tuple[str, int]] = set()

    def suspend(self, session: ActorSession, behavior_index: int) -> None:
        """Suspends a session that takes no steps of a behavior for now: its reserve goes to the others, without new credit.

        Earlier grants remain, so when the session returns its old reserve may exceed the limit once.
        """
        self._suspended.add((session.session_id, behavior_index))
        self._pools_of(behavior_index).steps.remove(session)

    def resume(self, session: ActorSession, behavior_index: int) -> None:
        """Resumes a session that takes steps again."""
        self._suspended.discard((session.session_id, behavior_index))

    def grant(self, session: ActorSession, account: Account) -> Grant | None:
        """Grants a session the available credit and records it in its account; returns None if nothing is granted."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or self.is_closed or not session.takes_credit:
            return None
        pools = self._pools_of(account.index)
        if account.quota_through is not None:  # the quota is the credit, without an allowance or a reserve
            account.granted_steps = min(MAX_GRANT, max(account.granted_steps, account.quota_through))
        elif _is_early(account, behavior):
            pass
        elif (session.session_id, account.index) not in self._suspended:
            steps, step_share = self._steps(session, account, behavior, pools)
            account.granted_steps = grant(steps, step_share)
            pools.steps.update(session, account.step_share.reserved)
        volume, byte_share = self._bytes(session, account, behavior, pools)
        account.granted_bytes = grant(volume, byte_share)
        pools.bytes.update(session, account.byte_share.reserved)
        return Grant(account.index, account.granted_steps, account.granted_bytes, account.quota_through)

    def is_worth_sending(self, session: ActorSession, account: Account) -> bool:
        """Returns whether to send a session new credit although no ack is due."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or self.is_closed or not session.takes_credit:
            return False
        pools = self._pools_of(account.index)
        if is_worth_sending(*self._bytes(session, account, behavior, pools)):
            return True
        is_suspended = (session.session_id, account.index) in self._suspended
        if is_suspended or account.quota_through is not None or _is_early(account, behavior):
            return False
        return is_worth_sending(*self._steps(session, account, behavior, pools))

    def forget(self, session: ActorSession) -> None:
        """Returns the reserve of a session that has ended or is away; its streams may still be open and get nothing more."""
        for index, pools in self._pools.items():
            self._suspended.discard((session.session_id, index))
            pools.steps.remove(session)
            pools.bytes.remove(session)

    def _pools_of(self, behavior_index: int) -> _Pools:
        pools, behavior = self._pools.get(behavior_index), self._behaviors.by_index(behavior_index)
        if pools is None:
            members = None if behavior is None else behavior.queue.unsettled.members
            pools = self._pools[behavior_index] = _Pools(_Pool(members), _Pool())
        return pools

    def _steps(
        self, session: ActorSession, account: Account, behavior: Behavior, pools: _Pools
    ) -> tuple[Common, Share]:
        share = account.step_share
        pools.steps.update(session, share.reserved)
        if not behavior.training:
            sessions = len(pools.steps)
            return Common(limit=UNTRAINED_STEPS * sessions, unsettled=0, reserved=0, sessions=sessions), share
        queue = behavior.queue
        common = Common(
            limit=queue.pace.ahead_limit_steps,
            unsettled=self._behaviors.unsettled_for(behavior, session),
            reserved=pools.steps.total,
            sessions=pools.steps.sharers(session.principal),
        )
        return common, share

    def _bytes(
        self, session: ActorSession, account: Account, behavior: Behavior, pools: _Pools
    ) -> tuple[Common, Share]:
        share = account.byte_share
        pools.bytes.update(session, share.reserved)
        common = Common(
            limit=behavior.queue.credit_bytes,
            unsettled=behavior.queue.queued_bytes,
            reserved=pools.bytes.total,
            sessions=pools.bytes.sharers(session.principal),
        )
        return common, share


def _is_early(account: Account, behavior: Behavior) -> bool:
    """Returns whether a session that follows quotas must wait until the trainer says whether there are quotas."""
    return account.follows_quota and behavior.training and not behavior.queue.has_pace
