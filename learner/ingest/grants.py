"""Credit of all sessions, behavior by behavior: applies the pure rules of `learner.ingest.credit` to the accounts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from learner.ingest.behaviors import Behavior, BehaviorTable
from learner.ingest.credit import Common, Share, grant, is_worth_sending
from learner.ingest.session import Account, ActorSession

UNTRAINED_STEPS: Final = 8192
"""What an actor may run ahead with a behavior that is not trained: acks come at once, so this only bridges their way."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Credit of one session with one behavior; see Credit in trajectory.proto."""

    behavior_index: int
    steps_through: int
    bytes_through: int


class _Pool:
    """What the sessions of one behavior have in reserve, kept up to date share by share."""

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
        is_closed: True once the learner is about to stop: nothing is granted any more.
    """

    def __init__(self, behaviors: BehaviorTable) -> None:
        self.is_closed = False
        self._behaviors = behaviors
        self._pools: dict[int, _Pools] = {}
        self._suspended: set[str] = set()

    def suspend(self, session: ActorSession) -> None:
        """A session takes no steps for now: what it has in reserve is for the others, and it gets no more.

        What was granted stays granted, so when it comes back the limit may be passed by its old reserve, once.
        """
        self._suspended.add(session.session_id)
        for pools in self._pools.values():
            pools.steps.remove(session.session_id)

    def resume(self, session: ActorSession) -> None:
        """It takes steps again."""
        self._suspended.discard(session.session_id)

    def grant(self, session: ActorSession, account: Account) -> Grant | None:
        """Grants what there is to a session and notes it in its account; None if nothing is granted."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or self.is_closed:
            return None
        pools = self._pools_of(account.index)
        if session.session_id not in self._suspended:
            steps, step_share = self._steps(session, account, behavior, pools)
            account.granted_steps = grant(steps, step_share)
            pools.steps.update(session.session_id, account.step_share.reserved)
        volume, byte_share = self._bytes(session, account, behavior, pools)
        account.granted_bytes = grant(volume, byte_share)
        pools.bytes.update(session.session_id, account.byte_share.reserved)
        return Grant(account.index, account.granted_steps, account.granted_bytes)

    def is_worth_sending(self, session: ActorSession, account: Account) -> bool:
        """Says whether a session should hear of new credit although it has no ack to get."""
        behavior = self._behaviors.by_index(account.index)
        if behavior is None or self.is_closed:
            return False
        pools = self._pools_of(account.index)
        if is_worth_sending(*self._bytes(session, account, behavior, pools)):
            return True
        is_stepping = session.session_id not in self._suspended
        return is_stepping and is_worth_sending(*self._steps(session, account, behavior, pools))

    def forget(self, session: ActorSession) -> None:
        """Gives back what a session has in reserve; it is over, or its actor is not connected."""
        self._suspended.discard(session.session_id)
        for pools in self._pools.values():
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
            unsettled=queue.unsettled_steps,
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
