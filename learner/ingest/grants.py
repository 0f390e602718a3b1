"""Grants credit to all sessions by behavior: applies the pure rules of `learner.ingest.credit` to the accounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.credit import MAX_GRANT, Common, Share, grant, is_worth_sending
from learner.ingest.session import Account, ActorSession

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

    def __init__(self) -> None:
        self._reserved: dict[str, int] = {}
        self.total = 0

    def __len__(self) -> int:
        return len(self._reserved)

    def update(self, session_id: str, reserved: int) -> None:
        self.total += reserved - self._reserved.get(session_id, 0)
        self._reserved[session_id] = reserved

    def remove(self, session_id: str) -> None:
        self.total -= self._reserved.pop(session_id, 0)


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
        self._pools_of(behavior_index).steps.remove(session.session_id)

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
            pools.steps.update(session.session_id, account.step_share.reserved)
        volume, byte_share = self._bytes(session, account, behavior, pools)
        account.granted_bytes = grant(volume, byte_share)
        pools.bytes.update(session.session_id, account.byte_share.reserved)
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
            pools.steps.remove(session.session_id)
            pools.bytes.remove(session.session_id)

    def _pools_of(self, behavior_index: int) -> _Pools:
        return self._pools.setdefault(behavior_index, _Pools(_Pool(), _Pool()))

    def _steps(
        self, session: ActorSession, account: Account, behavior: Behavior, pools: _Pools
    ) -> tuple[Common, Share]:
        share = account.step_share
        pools.steps.update(session.session_id, share.reserved)
        sessions = len(pools.steps)
        if not behavior.training:
            return Common(limit=UNTRAINED_STEPS * sessions, unsettled=0, reserved=0, sessions=sessions), share
        queue = behavior.queue
        common = Common(
            limit=queue.pace.ahead_limit_steps,
            unsettled=self._behaviors.unsettled_steps(behavior),
            reserved=pools.steps.total,
            sessions=sessions,
        )
        return common, share

    def _bytes(
        self, session: ActorSession, account: Account, behavior: Behavior, pools: _Pools
    ) -> tuple[Common, Share]:
        share = account.byte_share
        pools.bytes.update(session.session_id, share.reserved)
        common = Common(
            limit=behavior.queue.credit_bytes,
            unsettled=behavior.queue.queued_bytes,
            reserved=pools.bytes.total,
            sessions=len(pools.bytes),
        )
        return common, share


def _is_early(account: Account, behavior: Behavior) -> bool:
    """Returns whether a session that follows quotas must wait until the trainer says whether there are quotas."""
    return account.follows_quota and behavior.training and not behavior.queue.has_pace
