"""Stop 6 of a step's path: the ledger, which records the fate of every step that an actor sent.

    received = trained + dropped{reason} + queued + lost{event}        at all times

Each step has one fate. *Queued* covers everything between acceptance and that fate: the queue, staging, the device ring
and an unfinished update buffer. *Trained* is a step in a buffer whose update completed, or that entered replay memory.
The service keeps the books; trainers report the fate of queued steps in `learner.link.to_front.Settled`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from rollcast.history import History

from learner.shared.saved_values import count

RESTART = "restart"
ROLLBACK = "rollback"
_MAX_BOOKED = 2**62
"""Largest saved count of steps. An actor's claimed losses add 2**32 at most; a message holds up to 2**64."""


class LedgerError(ValueError):
    """Raised if the books would no longer balance; a bug in the learner."""


@dataclass(slots=True)
class LedgerBooks:
    """The books of one behavior, in steps.

    Attributes:
        received: Accepted for accounting.
        trained: Steps in a buffer whose update completed, or in replay memory.
        dropped: Dropped, by reason.
        queued: Accepted, with their fate open.
        lost: Lost, by event: ``restart`` (queued when the learner ended, or acked after the checkpoint), ``rollback``
            (acked after the checkpoint as only actors say, because the learner's own record is missing).
        duplicate: Steps in chunks that were received twice; outside the equation.
        unknown_sessions: Sessions of an earlier generation that have not returned; outside the equation.
        untimed: Lost steps that were acked after a checkpoint: the time in which they were taken is lost too.
    """

    received: int = 0
    trained: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    queued: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    duplicate: int = 0
    unknown_sessions: int = 0
    untimed: int = 0

    @property
    def balanced(self) -> bool:
        """True if the equation holds."""
        fates = self.trained + self.dropped.total() + self.queued + self.lost.total()
        return self.received == fates and self.queued >= 0


class Ledger:
    """The books of all behaviors, by name. Every method is one transaction.

    Args:
        history: Records what happens to each chunk; None without a history.

    Attributes:
        history: Records what happens to each chunk; None without a history.
        lock: Held by every method, and by callers around several operations that must be one transaction (accepting a
            chunk, taking a snapshot for the checkpoint). Reentrant.
    """

    def __init__(self, history: History | None = None) -> None:
        self.history = history
        self.lock = threading.RLock()
        self._rows: dict[str, LedgerBooks] = {}

    def enqueue(self, behavior: str, steps: int) -> None:
        """Books accepted steps: received and queued grow."""
        with self.lock:
            row = self._row(behavior, steps)
            row.received += steps
            row.queued += steps

    def reject(self, behavior: str, reason: str, steps: int) -> None:
        """Books steps that were refused on arrival: received and dropped grow."""
        with self.lock:
            row = self._row(behavior, steps)
            row.received += steps
            row.dropped[reason] += steps

    def settle(self, behavior: str, trained: int, dropped: Mapping[str, int]) -> None:
        """Books the fate of queued steps.

        Args:
            behavior: The behavior's name.
            trained: Steps whose update completed, or that entered replay memory.
            dropped: Untrained steps, by reason.

        Raises:
            LedgerError: Fewer steps are queued, or a number is negative; nothing has changed then.
        """
        if trained < 0 or any(steps < 0 for steps in dropped.values()):
            raise LedgerError(
                f"{trained} trained and {dict(dropped)} dropped steps of {behavior}: neither number can be negative"
            )
        with self.lock:
            row = self._leave_queue(behavior, trained + sum(dropped.values()))
            row.trained += trained
            row.dropped.update(dropped)

    def lose(self, behavior: str, event: str, steps: int, *, queued: bool) -> None:
        """Books steps that were lost in an event.

        Args:
            behavior: The behavior's name.
            event: ``restart`` or ``rollback``.
            steps: Number of steps.
            queued: True if these books hold the steps as queued; False if only an actor reports them, so that received
                grows too.

        Raises:
            LedgerError: `queued` is True and fewer steps are queued.
        """
        with self.lock:
            row = self._leave_queue(behavior, steps) if queued else self._row(behavior, steps)
            if not queued:
                row.received += steps
                row.untimed += steps
            row.lost[event] += steps
            if self.history is not None:
                self.history.write("lost", behavior=behavior, reason=event, steps=steps, queued=queued)

    def recover(self, received: Mapping[str, int]) -> dict[str, int]:
        """Books steps that were acked after the loaded state, or before the first one, as lost{restart}.

        Args:
            received: Received steps of the run by behavior, as the record of the last process has them.

        Returns:
            The newly booked steps by behavior.
        """
        with self.lock:
            missing = +Counter({name: steps - self._row(name, steps).received for name, steps in received.items()})
            for name, steps in missing.items():
                self.lose(name, RESTART, steps, queued=False)
            return dict(missing)

    def received(self) -> dict[str, int]:
        """Returns the received steps of each behavior."""
        with self.lock:
            return {name: row.received for name, row in self._rows.items()}

    def received_steps(self, behavior: str) -> int:
        """Returns the received steps of a behavior."""
        row = self._rows.get(behavior)
        return 0 if row is None else row.received

    def untimed_steps(self, behavior: str) -> int:
        """Returns the lost steps that were acked after a checkpoint: the time in which they were taken is lost too."""
        row = self._rows.get(behavior)
        return 0 if row is None else row.untimed

    def duplicate(self, behavior: str, steps: int) -> None:
        """Books steps of a chunk that was already settled; outside the equation."""
        with self.lock:
            self._row(behavior, steps).duplicate += steps

    def unknown(self, behavior: str, sessions: int) -> None:
        """Sets the number of sessions of an earlier generation that have not returned."""
        with self.lock:
            self._row(behavior, sessions).unknown_sessions = sessions

    def books(self, behavior: str) -> LedgerBooks:
        """Returns a copy of the books of a behavior; zeros if it is unknown."""
        with self.lock:
            row = self._rows.get(behavior, LedgerBooks())
            return replace(row, dropped=+row.dropped, lost=+row.lost)  # without reasons that have no steps

    def queued(self, behavior: str) -> int:
        """Returns the queued steps of a behavior."""
        row = self._rows.get(behavior)
        return 0 if row is None else row.queued

    def behaviors(self) -> tuple[str, ...]:
        """Returns the names of all behaviors in the ledger."""
        with self.lock:
            return tuple(self._rows)

    def state_dict(self) -> dict[str, Any]:
        """Returns the books as plain values, for a checkpoint."""
        with self.lock:
            return {
                name: {
                    "received": row.received,
                    "trained": row.trained,
                    "dropped": dict(row.dropped),
                    "queued": row.queued,
                    "lost": dict(row.lost),
                    "duplicate": row.duplicate,
                    "untimed": row.untimed,
                }
                for name, row in self._rows.items()
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from a checkpoint; steps that were queued when it was saved are booked as lost{restart}.

        Raises:
            LedgerError: The saved books do not balance.
            AttributeError, KeyError, TypeError, ValueError: The state is invalid.
        """
        rows: dict[str, LedgerBooks] = {}
        for name, saved in state.items():
            row = LedgerBooks(
                received=count(saved, "received", most=_MAX_BOOKED),
                trained=count(saved, "trained", most=_MAX_BOOKED),
                dropped=_by_word(saved["dropped"]),
                lost=_by_word(saved["lost"]),
                duplicate=count(saved, "duplicate", most=_MAX_BOOKED),
            )
            row.untimed = count(saved, "untimed", most=_MAX_BOOKED)
            queued = count(saved, "queued", most=_MAX_BOOKED)
            if queued:
                row.lost[RESTART] += queued
            if row.received != row.trained + row.dropped.total() + row.lost.total():
                raise LedgerError(
                    f"the books of {name} do not balance: received {row.received}, trained {row.trained}, dropped "
                    f"{row.dropped.total()}, lost {row.lost.total()} (including {queued} that were queued)"
                )
            rows[str(name)] = row
        with self.lock:
            self._rows = rows
            if self.history is not None:
                for name, saved in state.items():
                    steps = int(saved["queued"])
                    self.history.write("lost", behavior=str(name), reason=RESTART, steps=steps, queued=True)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Creates a ledger from a checkpoint; see `load_state_dict`."""
        ledger = cls()
        ledger.load_state_dict(state)
        return ledger

    def _row(self, behavior: str, steps: int) -> LedgerBooks:
        if steps < 0:
            raise LedgerError(f"{steps} steps of {behavior}: a number of steps cannot be negative")
        return self._rows.setdefault(behavior, LedgerBooks())

    def _leave_queue(self, behavior: str, steps: int) -> LedgerBooks:
        row = self._row(behavior, steps)
        if steps > row.queued:
            raise LedgerError(f"{steps} steps of {behavior} cannot leave the queue: only {row.queued} are queued")
        row.queued -= steps
        return row


def _by_word(counts: Mapping[Any, Any]) -> Counter[str]:
    return Counter({str(word): count(counts, word, most=_MAX_BOOKED) for word in counts})
