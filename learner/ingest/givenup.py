"""What actors gave up before it reached the learner, by reason: the part of the books that only they can tell."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from learner.common.saved_values import MAX_CLAIMED, count
from learner.ingest.session import Account, Session


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

    def state(self) -> dict[str, dict[str, int]]:
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

    def end(self, session: Session) -> None:
        """Takes in a session that is over."""
        for account in session.accounts.values():
            self._ended.setdefault(account.index, GivenUp()).add(self._of(session.session_id, account))
        self._restored.pop(session.session_id, None)

    def total(self, behavior_index: int, sessions: Iterable[Session]) -> GivenUp:
        """Returns the counts of a behavior: those of sessions that are over, and of these."""
        total = GivenUp()
        total.add(self._ended.get(behavior_index, GivenUp()))
        for session in sessions:
            account = session.accounts.get(behavior_index)
            if account is not None:
                total.add(self._of(session.session_id, account))
        return total

    def state(self, sessions: Iterable[Session]) -> dict[str, Any]:
        """Returns everything as plain values, for a checkpoint."""
        return {
            "ended": {index: given_up.state() for index, given_up in self._ended.items()},
            "sessions": {
                session.session_id: {
                    index: self._of(session.session_id, account).state() for index, account in session.accounts.items()
                }
                for session in sessions
            },
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes on from a checkpoint."""
        self._ended = _by_index(state["ended"])
        self._restored = {str(session_id): _by_index(saved) for session_id, saved in state["sessions"].items()}

    def _of(self, session_id: str, account: Account) -> GivenUp:
        """Returns what an actor said last, in this process or in an earlier one: its counts go on with its session."""
        if account.counters is not None:
            return GivenUp(Counter(account.counters.discarded), Counter(account.counters.dropped))
        return self._restored.get(session_id, {}).get(account.index, GivenUp())


def _by_index(state: Mapping[Any, Any]) -> dict[int, GivenUp]:
    return {int(index): GivenUp.from_state(saved) for index, saved in state.items()}
