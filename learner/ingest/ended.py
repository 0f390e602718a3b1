"""Records of sessions that are over: the steps they took, what their actors gave up, and enough to settle a late report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from learner.common.saved_values import MAX_CLAIMED, count, flag, text
from learner.ingest.ledger import ROLLBACK, Ledger
from learner.ingest.session import MAX_LOST_STEPS, Account, ActorCounters, ActorSession


@dataclass(slots=True)
class GivenUp:
    """Steps of one behavior that actors took and gave up, by reason.

    Attributes:
        discarded: before they became part of a chunk.
        dropped: in chunks that were never acked.
    """

    discarded: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, other: GivenUp) -> None:
        """Adds the counts of another one."""
        self.discarded.update(other.discarded)
        self.dropped.update(other.dropped)

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Returns the counts as plain values, for a checkpoint."""
        return {"discarded": dict(self.discarded), "dropped": dict(self.dropped)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> GivenUp:
        """Makes the counts from a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: it is not what was saved.
        """
        discarded, dropped = (
            {str(reason): count(state[kind], reason, most=MAX_CLAIMED) for reason in state[kind]}
            for kind in ("discarded", "dropped")
        )
        return cls(Counter(discarded), Counter(dropped))


class GivenUpBook:
    """Totals over all sessions, those that are over included. The caller holds the ledger's lock."""

    def __init__(self) -> None:
        self._ended: dict[int, GivenUp] = {}
        self._restored: dict[str, dict[int, GivenUp]] = {}  # of sessions whose actors have not reported since

    def end(self, session: ActorSession) -> None:
        """Takes in a session that is over."""
        for account in session.accounts.values():
            self._ended.setdefault(account.index, GivenUp()).add(self._of(session.session_id, account))
        self._restored.pop(session.session_id, None)

    def total(self, behavior_index: int, sessions: Iterable[ActorSession]) -> GivenUp:
        """Returns the counts of a behavior: those of sessions that are over, and of these."""
        total = GivenUp()
        total.add(self._ended.get(behavior_index, GivenUp()))
        for session in sessions:
            account = session.accounts.get(behavior_index)
            if account is not None:
                total.add(self._of(session.session_id, account))
        return total

    def state_dict(self, sessions: Iterable[ActorSession]) -> dict[str, Any]:
        """Returns everything as plain values, for a checkpoint."""
        return {
            "ended": {index: given_up.state_dict() for index, given_up in self._ended.items()},
            "sessions": {
                session.session_id: {
                    index: self._of(session.session_id, account).state_dict()
                    for index, account in session.accounts.items()
                }
                for session in sessions
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint."""
        self._ended = _by_index(state["ended"])
        self._restored = {str(session_id): _by_index(saved) for session_id, saved in state["sessions"].items()}

    def _of(self, session_id: str, account: Account) -> GivenUp:
        """Returns what an actor said last, in this process or in an earlier one: its counts go on with its session."""
        if account.counters is not None:
            return GivenUp(Counter(account.counters.discarded), Counter(account.counters.dropped))
        return self._restored.get(session_id, {}).get(account.index, GivenUp())


def _by_index(state: Mapping[Any, Any]) -> dict[int, GivenUp]:
    return {int(index): GivenUp.from_state(saved) for index, saved in state.items()}


MAX_RECORDS: Final = 1024
"""Sessions that ended without a farewell and may still be asked for."""


@dataclass(slots=True)
class EndedAccount:
    """What a session that is over had sent of one behavior, as far as it is in the books.

    Attributes:
        behavior: its name.
        produced_steps: taken by the actor, as far as it said.
        received_steps: in the books, lost ones included.
        lost_steps: in the books on the actor's word alone, at most `MAX_LOST_STEPS`.
    """

    behavior: str
    produced_steps: int = 0
    received_steps: int = 0
    lost_steps: int = 0

    @classmethod
    def from_state(cls, *values: object) -> Self:
        """Makes an account from a checkpoint.

        Raises:
            KeyError, ValueError: it is not what was saved.
        """
        state = dict(zip(("behavior", "produced_steps", "received_steps", "lost_steps"), values, strict=True))
        produced, received = (count(state, key, most=MAX_CLAIMED) for key in ("produced_steps", "received_steps"))
        return cls(text(state, "behavior"), produced, received, count(state, "lost_steps", most=MAX_LOST_STEPS))


@dataclass(slots=True)
class EndedSession:
    """A session that is over.

    Attributes:
        accounts: by behavior index.
        is_unknown: it is of an earlier generation and its actor has never come back: what it sent since the checkpoint
            is unknown.
    """

    accounts: dict[int, EndedAccount] = field(default_factory=dict)
    is_unknown: bool = False


class EndedSessions:
    """Totals and records of the sessions that are over. The caller holds the ledger's lock."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken_steps: Counter[int] = Counter()
        self._records: dict[str, EndedSession] = {}

    def steps_taken(self, behavior_index: int) -> int:
        """Returns the steps of a behavior that were taken in sessions that are over."""
        return self._taken_steps[behavior_index]

    def unknown(self, behavior: str) -> int:
        """Returns how many of the records are unknown and knew a behavior."""
        return sum(
            record.is_unknown and any(account.behavior == behavior for account in record.accounts.values())
            for record in self._records.values()
        )

    def add(self, session: ActorSession, *, said_farewell: bool) -> None:
        """Takes in a session that is over; a record stays only if its actor may still ask for it."""
        for account in session.accounts.values():
            self._taken_steps[account.index] += account.produced_steps
        if not said_farewell:
            accounts = {
                account.index: EndedAccount(account.behavior, account.produced_steps, account.received_steps)
                for account in session.accounts.values()
            }
            self._keep(session.session_id, EndedSession(accounts, is_unknown=session.is_awaited))

    def settle(
        self,
        session_id: str,
        reports: Iterable[ActorCounters],
        *,
        is_older: bool,
        name_of: Callable[[int], str | None],
    ) -> None:
        """Books what an actor reports of a session that cannot go on, as far as it can be believed.

        Args:
            session_id: the session it asked for.
            reports: its counters.
            is_older: the session is of an earlier generation: what was acked there and is not in the books was lost
                with the learner's last process.
            name_of: the behavior of an index at the time of the session; None if nobody can tell.
        """
        record = self._records.get(session_id)
        if record is None and not is_older:
            return  # its record was given up long ago; the books already hold what was received
        record = record or EndedSession()
        for report in reports:
            name = name_of(report.behavior_index)
            if name is None:
                continue
            account = record.accounts.setdefault(report.behavior_index, EndedAccount(name))
            self._taken_steps[report.behavior_index] += max(0, report.produced - account.produced_steps)
            account.produced_steps = max(account.produced_steps, report.produced)
            lost_steps = min(report.acked - account.received_steps, MAX_LOST_STEPS - account.lost_steps)
            if is_older and lost_steps > 0:
                self._ledger.lose(name, ROLLBACK, lost_steps, queued=False)
                account.received_steps += lost_steps
                account.lost_steps += lost_steps
        record.is_unknown = False
        self._keep(session_id, record)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything as plain values, for a checkpoint."""
        return {
            "taken_steps": dict(self._taken_steps),
            "records": {
                session_id: {
                    "is_unknown": record.is_unknown,
                    "accounts": {
                        index: [account.behavior, account.produced_steps, account.received_steps, account.lost_steps]
                        for index, account in record.accounts.items()
                    },
                }
                for session_id, record in self._records.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint.

        Raises:
            AttributeError, KeyError, TypeError, ValueError: it is not what was saved.
        """
        taken = state["taken_steps"]
        self._taken_steps = Counter({int(index): count(taken, index, most=MAX_CLAIMED) for index in taken})
        self._records = {
            str(session_id): EndedSession(
                {int(index): EndedAccount.from_state(*values) for index, values in saved["accounts"].items()},
                flag(saved, "is_unknown"),
            )
            for session_id, saved in state["records"].items()
        }

    def _keep(self, session_id: str, record: EndedSession) -> None:
        self._records.pop(session_id, None)
        self._records[session_id] = record
        if len(self._records) > MAX_RECORDS:
            settled = (key for key, kept in self._records.items() if not kept.is_unknown)
            self._records.pop(next(settled, next(iter(self._records))))
