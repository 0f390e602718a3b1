"""Keeps the record of received steps, and books what an earlier start of the learner received after its last run state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from learner.service.ingest.behaviors import Behavior, BehaviorTable
from learner.service.ingest.ended import EndedSessions
from learner.service.ingest.ledger import Ledger
from learner.service.ingest.session import Account, ActorSession
from learner.shared.runfolder.received import Received, ReceivedCount, session_key_of


class ReceivedRecord(Protocol):
    """Keeps what is received where it outlives the process; see `learner.shared.runfolder.received`."""

    def note(
        self, session_id: str, index: int, behavior: str, *, total: int, steps: int, through: int, taken: int
    ) -> None:
        """Stores what was received in a session of a behavior."""

    def end(self, session_id: str, taken: Mapping[int, int], *, has_left: bool) -> None:
        """Notes that a session has ended, and the steps taken in it by index of the behavior."""


class ReceivedBook:
    """Books and records what was received, by session. The caller holds the ledger's lock.

    Args:
        ledger: The ledger of steps.
        ended: The sessions that have ended.
        behaviors: The declared behaviors.

    Attributes:
        record: Keeps what is received; None without a run folder.
    """

    def __init__(self, ledger: Ledger, ended: EndedSessions, behaviors: BehaviorTable) -> None:
        self.record: ReceivedRecord | None = None
        self._ledger = ledger
        self._ended = ended
        self._behaviors = behaviors
        self._left: dict[bytes, Mapping[int, ReceivedCount]] = {}

    def recover(
        self,
        found: Received,
        sessions: Iterable[ActorSession],
        new_account: Callable[[Behavior, ActorSession], Account],
    ) -> tuple[dict[str, int], list[ActorSession]]:
        """Books what was received after the loaded state.

        Args:
            found: The record of the last start.
            sessions: The awaited sessions.
            new_account: Makes the account of a behavior in a session.

        Returns:
            Steps that are now lost{restart}, by behavior; awaited sessions that their actors have ended.
        """
        known = self._ledger.received()
        gained: Counter[str] = Counter()
        awaited = {session_key_of(session.session_id): session for session in sessions}
        for key, counts in found.sessions.items():
            session = awaited.get(key)
            if session is None:
                gained += self._ended.recover(key, counts, known)
            else:
                gained += self._recover(session, counts, new_account)
            is_new = session is not None or any(each.total > known.get(each.behavior, 0) for each in counts.values())
            if is_new and any(each.has_left for each in counts.values()):
                self._left[key] = counts  # a start that continues from the same state ends it again
        # A damaged record may have less in its totals than in its sessions.
        lost = self._ledger.recover((Counter(known) + gained) | Counter(found.totals))
        for name, steps in (Counter(lost) - gained).items():  # of sessions that are no longer in the record
            self._ended.take(name, steps)
        return lost, [awaited[key] for key in self._left if key in awaited]

    def counts(self, sessions: Iterable[ActorSession]) -> dict[bytes, Mapping[int, ReceivedCount]]:
        """Returns what was received in sessions that may return, and in those that ended after the loaded state."""
        present: dict[bytes, Mapping[int, ReceivedCount]] = {
            session_key_of(session.session_id): {
                account.index: ReceivedCount(
                    account.behavior, account.received_steps, session.acked_through, taken=account.taken_steps
                )
                for account in session.accounts.values()
            }
            for session in sessions
        }
        return {**self._left, **self._ended.received(), **present}

    def note(self, session: ActorSession, account: Account) -> None:
        """Records what was received in a session, before it is acked."""
        if self.record is not None:
            self.record.note(
                session.session_id,
                account.index,
                account.behavior,
                total=self._ledger.received_steps(account.behavior),
                steps=account.received_steps,
                through=session.acked_through,
                taken=account.taken_steps,
            )

    def end(self, session: ActorSession, *, has_left: bool) -> None:
        """Records that a session has ended."""
        if self.record is not None:
            taken = {index: account.taken_steps for index, account in session.accounts.items()}
            self.record.end(session.session_id, taken, has_left=has_left)

    def _recover(
        self,
        session: ActorSession,
        counts: Mapping[int, ReceivedCount],
        new_account: Callable[[Behavior, ActorSession], Account],
    ) -> Counter[str]:
        """Takes over what was received in an awaited session; returns the received steps that were not known."""
        gained: Counter[str] = Counter()
        for found in counts.values():
            session.acked_through = max(session.acked_through, found.through)
            behavior = self._behaviors.by_name(found.behavior)
            if behavior is None:
                continue  # declared after the loaded state
            account = session.accounts.get(behavior.index)
            if account is None:
                account = session.accounts[behavior.index] = new_account(behavior, session)
            gained[found.behavior] += account.recover(found.steps, found.taken)
        return gained
