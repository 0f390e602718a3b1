"""Records sessions that have ended: their steps, and enough to settle a late report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from learner.service.ingest.given_up import ACTOR_GONE, GivenUp
from learner.service.ingest.ledger import ROLLBACK, Ledger
from learner.service.ingest.session import ActorCounters, ActorSession
from learner.shared.runfolder.received import ReceivedCount, session_key_of
from learner.shared.saved_values import MAX_CLAIMED, count, flag, text

_UNNAMED: Final = "sha256:"
MAX_RECORDS: Final = 1024
"""Most records of sessions that ended without a goodbye and may still be requested."""


@dataclass(slots=True)
class EndedAccount:
    """The booked steps of one behavior in a session that has ended.

    Attributes:
        behavior: Name of the behavior.
        produced_steps: Steps taken by the actor, as far as it reported them.
        received_steps: Steps in the ledger, including lost ones.
        lost_steps: Steps in the ledger that only the actor reports as lost.
        gone_steps: Steps of which nothing is known but that they were taken.
    """

    behavior: str
    produced_steps: int = 0
    received_steps: int = 0
    lost_steps: int = 0
    gone_steps: int = 0

    @classmethod
    def from_state(cls, *values: object) -> Self:
        """Creates an account from a checkpoint.

        Raises:
            KeyError, ValueError: The state is invalid.
        """
        names = ("produced_steps", "received_steps", "lost_steps", "gone_steps")
        state = dict(zip(("behavior", *names), values, strict=True))
        return cls(text(state, "behavior"), **{name: count(state, name, most=MAX_CLAIMED) for name in names})


@dataclass(slots=True)
class EndedSession:
    """A session that has ended.

    Attributes:
        accounts: Accounts by behavior index.
        is_unknown: Whether it belongs to an earlier generation and its actor never returned, so that the steps sent
            since the checkpoint are unknown.
        principal: Name of the principal that it belonged to; empty if actors are not identified.
        through: Every chunk up to this sequence was received.
    """

    accounts: dict[int, EndedAccount] = field(default_factory=dict)
    is_unknown: bool = False
    principal: str = ""
    through: int = 0


class EndedSessions:
    """Totals and records of the sessions that have ended. The caller holds the ledger's lock.

    A session of which only the learner's record of received steps knows is listed by the name that it has there, until its
    actor names it.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._taken_steps: Counter[str] = Counter()
        self._gone_steps: Counter[str] = Counter()
        self._given_up: dict[int, GivenUp] = {}
        self._records: dict[str, EndedSession] = {}

    def steps_taken(self, behavior: str) -> int:
        """Returns the steps of a behavior taken in ended sessions."""
        return self._taken_steps[behavior]

    def take(self, behavior: str, steps: int, *, gone: int = 0) -> None:
        """Adds steps taken in sessions of which there is no record; `gone` of them were not received."""
        self._taken_steps[behavior] += steps
        self._gone_steps[behavior] += gone

    def given_up(self, behavior: str, index: int) -> GivenUp:
        """Returns the steps that were given up in ended sessions, and those that their actors left with."""
        found = GivenUp()
        found.add(self._given_up.get(index, GivenUp()))
        if gone := self._gone_steps[behavior]:
            found.add(GivenUp(Counter({ACTOR_GONE: gone})))
        return found

    def knows(self, session_id: str) -> bool:
        """Returns whether there is a record of a session under its own id."""
        return session_id in self._records

    def received_through(self, session_id: str) -> int:
        """Returns the sequence up to which the chunks of a session were received; 0 if unknown."""
        record = self._records.get(session_id)
        return 0 if record is None else record.through

    def recover(self, key: bytes, counts: Mapping[int, ReceivedCount], known: Mapping[str, int]) -> Counter[str]:
        """Takes over what the learner's record says that it received in a session.

        Args:
            key: Key of the session; see `learner.shared.runfolder.received`.
            counts: What was received, by index of the behavior in that session.
            known: Received steps of the run that the loaded state has, by behavior. A session without a record whose last
                chunk is among them had ended, and its steps are in the totals.

        Returns:
            The received steps that were not known, by behavior.
        """
        name = next((each for each in self._records if _key_of(each) == key), _unnamed(key))
        record = self._records.get(name)
        gained: Counter[str] = Counter()
        for index, found in counts.items():
            if record is None and found.total <= known.get(found.behavior, 0):
                continue
            if record is None and found.has_left:
                taken = max(found.steps, found.taken)
                self.take(found.behavior, taken, gone=taken - found.steps)
                gained[found.behavior] += found.steps
                continue
            record = record or EndedSession(is_unknown=True)
            account = record.accounts.setdefault(index, EndedAccount(found.behavior))
            record.through = max(record.through, found.through)
            if account.behavior == found.behavior and found.steps > account.received_steps:
                more = found.steps - account.received_steps
                self._book(account, received=more, produced=found.taken)
                gained[found.behavior] += more
        if record is not None:
            self._keep(name, record)
        return gained

    def received(self) -> dict[bytes, dict[int, ReceivedCount]]:
        """Returns what was received in the recorded sessions, by key and by index of the behavior."""
        return {
            _key_of(name): {
                index: ReceivedCount(
                    account.behavior, account.received_steps, record.through, taken=account.produced_steps
                )
                for index, account in record.accounts.items()
            }
            for name, record in self._records.items()
        }

    def unknown(self, behavior: str) -> int:
        """Returns the number of records of unknown sessions that include a behavior."""
        return sum(
            record.is_unknown and any(account.behavior == behavior for account in record.accounts.values())
            for record in self._records.values()
        )

    def add(self, session: ActorSession, *, said_farewell: bool) -> None:
        """Adds a session that has ended; keeps a record only if its actor may still request it."""
        for account in session.accounts.values():
            self.take(account.behavior, account.taken_steps, gone=account.outstanding_steps)
            self._given_up.setdefault(account.index, GivenUp()).add(account.given_up)
        if not said_farewell:
            accounts = {
                account.index: EndedAccount(
                    account.behavior,
                    account.taken_steps,
                    account.received_steps,
                    gone_steps=account.outstanding_steps,
                )
                for account in session.accounts.values()
            }
            record = EndedSession(accounts, session.is_awaited, session.principal, session.acked_through)
            self._keep(session.session_id, record)

    def settle(
        self,
        session_id: str,
        reports: Iterable[ActorCounters],
        *,
        is_older: bool,
        is_believed: bool,
        name_of: Callable[[int], str | None],
        claimable: int,
        principal: str = "",
    ) -> None:
        """Books an actor's report on a session that cannot resume, as far as the report is credible.

        Args:
            session_id: The session that the actor requested.
            reports: The actor's counters.
            is_older: Whether the session belongs to an earlier generation: steps acked there and missing from the
                ledger were lost with the learner's last process.
            is_believed: Whether such steps are booked as the actor says; False if the learner has its own record.
            name_of: Returns the behavior of an index at the time of the session; None if unknown.
            claimable: Most steps that its actor's word is enough for.
            principal: Name of the caller; a session of another one is not settled.
        """
        unnamed = self._records.pop(_unnamed(session_key_of(session_id)), None)
        if unnamed is not None:
            unnamed.principal = principal
            self._records[session_id] = unnamed
        record = self._records.get(session_id)
        if record is not None and record.principal != principal:
            return
        if record is None and not is_older:
            return  # its record was discarded long ago; the ledger already holds the received steps
        record = record or EndedSession(principal=principal)
        for report in reports:
            known = record.accounts.get(report.behavior_index)
            name = name_of(report.behavior_index) if known is None else known.behavior
            if name is None:
                continue
            account = record.accounts.setdefault(report.behavior_index, EndedAccount(name))
            told = report.within(account.received_steps - account.lost_steps, claimable)
            lost_steps = max(0, told.acked - account.received_steps) if is_older and is_believed else 0
            self._ledger.lose(name, ROLLBACK, lost_steps, queued=False)
            self._book(account, received=lost_steps, produced=told.produced)
            account.lost_steps += lost_steps
        record.is_unknown = False
        self._keep(session_id, record)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state as plain values, for a checkpoint."""
        return {
            "taken_steps": dict(self._taken_steps),
            "gone_steps": dict(self._gone_steps),
            "given_up": {index: given_up.state_dict() for index, given_up in self._given_up.items()},
            "records": {
                session_id: {
                    "is_unknown": record.is_unknown,
                    "principal": record.principal,
                    "through": record.through,
                    "accounts": {
                        index: [
                            account.behavior,
                            account.produced_steps,
                            account.received_steps,
                            account.lost_steps,
                            account.gone_steps,
                        ]
                        for index, account in record.accounts.items()
                    },
                }
                for session_id, record in self._records.items()
            },
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint.

        Raises:
            AttributeError, IndexError, KeyError, TypeError, ValueError: The state is invalid.
        """
        taken, gone, given_up = state["taken_steps"], state["gone_steps"], state["given_up"]
        self._taken_steps = Counter({str(name): count(taken, name, most=MAX_CLAIMED) for name in taken})
        self._gone_steps = Counter({str(name): count(gone, name, most=MAX_CLAIMED) for name in gone})
        self._given_up = {int(index): GivenUp.from_state(saved) for index, saved in given_up.items()}
        self._records = {
            str(session_id): EndedSession(
                {int(index): EndedAccount.from_state(*values) for index, values in saved["accounts"].items()},
                flag(saved, "is_unknown"),
                text(saved, "principal"),
                count(saved, "through", most=MAX_CLAIMED),
            )
            for session_id, saved in state["records"].items()
        }

    def _book(self, account: EndedAccount, *, received: int, produced: int) -> None:
        """Adds received steps to an account, and steps taken up to a number of produced ones."""
        taken = max(produced - account.produced_steps, received - account.gone_steps, 0)
        account.received_steps += received
        account.produced_steps += taken
        account.gone_steps += taken - received
        self.take(account.behavior, taken, gone=taken - received)

    def _keep(self, session_id: str, record: EndedSession) -> None:
        self._records.pop(session_id, None)
        self._records[session_id] = record
        if len(self._records) > MAX_RECORDS:
            settled = (key for key, kept in self._records.items() if not kept.is_unknown)
            self._records.pop(next(settled, next(iter(self._records))))


def _unnamed(key: bytes) -> str:
    """Returns the name of a session of which only its key is known; no id has such a form."""
    return f"{_UNNAMED}{key.hex()}"


def _key_of(name: str) -> bytes:
    return bytes.fromhex(name.removeprefix(_UNNAMED)) if name.startswith(_UNNAMED) else session_key_of(name)
