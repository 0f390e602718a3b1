"""Counts the steps that actors took and gave up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rollcast.limits import MAX_REASONS

from learner.common.saved_values import MAX_CLAIMED, count
from learner.ingest.session import Account, ActorSession

OTHER: Final = "other"
"""Reason of steps whose own reason is one too many: actors choose the words, and each would be kept for ever."""


@dataclass(slots=True)
class GivenUp:
    """Steps of one behavior that actors took and gave up, by reason.

    Attributes:
        discarded: Given up before they became part of a chunk.
        dropped: Given up in chunks that were never acked.
    """

    discarded: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, other: GivenUp) -> None:
        """Adds another record's counts; from `MAX_REASONS` on, new reasons count as `OTHER`."""
        for own, others in ((self.discarded, other.discarded), (self.dropped, other.dropped)):
            for reason, steps in others.items():
                own[reason if reason in own or len(own) < MAX_REASONS else OTHER] += steps

    def state_dict(self) -> dict[str, dict[str, int]]:
        """Returns the counts as plain values, for a checkpoint."""
        return {"discarded": dict(self.discarded), "dropped": dict(self.dropped)}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> GivenUp:
        """Creates the counts from a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: The state is invalid.
        """
        discarded, dropped = (
            {str(reason): count(state[kind], reason, most=MAX_CLAIMED) for reason in state[kind]}
            for kind in ("discarded", "dropped")
        )
        found = cls()
        found.add(cls(Counter(discarded), Counter(dropped)))  # saved by a build without the limit, perhaps
        return found


class GivenUpBook:
    """Totals over all sessions, including ended ones. The caller holds the ledger's lock."""

    def __init__(self) -> None:
        self._ended: dict[int, GivenUp] = {}
        self._restored: dict[str, dict[int, GivenUp]] = {}  # last counts of actors that have not reported since

    def end(self, session: ActorSession) -> None:
        """Adds a session that has ended."""
        for account in session.accounts.values():
            self._ended.setdefault(account.index, GivenUp()).add(self._of(session.session_id, account))
        self._restored.pop(session.session_id, None)

    def total(self, behavior_index: int, sessions: Iterable[ActorSession]) -> GivenUp:
        """Returns the counts of a behavior over the ended sessions and the given ones."""
        total = GivenUp()
        total.add(self._ended.get(behavior_index, GivenUp()))
        for session in sessions:
            account = session.accounts.get(behavior_index)
            if account is not None:
                total.add(self._of(session.session_id, account))
        return total

    def state_dict(self, sessions: Iterable[ActorSession]) -> dict[str, Any]:
        """Returns the state as plain values, for a checkpoint."""
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
        """Restores from a checkpoint."""
        self._ended = _by_index(state["ended"])
        self._restored = {str(session_id): _by_index(saved) for session_id, saved in state["sessions"].items()}

    def _of(self, session_id: str, account: Account) -> GivenUp:
        """Returns an actor's last counts, reported to this process or, before it reports again, to an earlier one."""
        if account.counters is not None:
            return GivenUp(Counter(account.counters.discarded), Counter(account.counters.dropped))
        return self._restored.get(session_id, {}).get(account.index, GivenUp())


def _by_index(state: Mapping[Any, Any]) -> dict[int, GivenUp]:
    return {int(index): GivenUp.from_state(saved) for index, saved in state.items()}
