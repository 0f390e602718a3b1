"""Stop 6 of a step's way: the books that say what became of every step an actor sent.

    received = trained + dropped{reason} + queued + lost{event}        at every moment

One step has one fate. *Queued* is everything between acceptance and its fate: the queue, staging, the device ring and
an unfinished update buffer. *Trained* is a step in a buffer whose update completed, or that entered replay memory.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from learner.common.saved_values import count

RESTART = "restart"
ROLLBACK = "rollback"
_MAX_BOOKED = 2**62
"""Of any count in a checkpoint. What an actor says it has lost adds 2**32 at most, and a message holds up to 2**64."""


class LedgerError(ValueError):
    """The books would no longer balance; a fault in the learner's own code."""


@dataclass(frozen=True, slots=True)
class LedgerBooks:
    """The books of one behavior at one moment, in steps.

    Attributes:
        received: accepted for accounting.
        trained: in a buffer whose update completed, or in replay memory.
        dropped: by reason.
        queued: accepted, fate open.
        lost: by event: ``restart`` (queued when the learner ended), ``rollback`` (acked after the checkpoint).
        duplicate: in chunks that came twice; outside the equation.
        unknown_sessions: sessions of an earlier generation that have not come back; outside the equation.
    """

    received: int = 0
    trained: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)
    queued: int = 0
    lost: Mapping[str, int] = field(default_factory=dict)
    duplicate: int = 0
    unknown_sessions: int = 0

    @property
    def balanced(self) -> bool:
        """Says whether the equation holds."""
        fates = self.trained + sum(self.dropped.values()) + self.queued + sum(self.lost.values())
        return self.received == fates and self.queued >= 0


@dataclass(slots=True)
class _Row:
    received: int = 0
    trained: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    queued: int = 0
    lost: Counter[str] = field(default_factory=Counter)
    duplicate: int = 0
    unknown_sessions: int = 0


class Ledger:
    """The books of all behaviors, by name. Every method is one transaction.

    Attributes:
        lock: held by every method; held by others around several steps that must be one moment (accepting a chunk,
            taking a snapshot for the checkpoint). It may be taken again by the thread that holds it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._rows: dict[str, _Row] = {}

    def enqueue(self, behavior: str, steps: int) -> None:
        """Notes steps that were accepted and wait: received and queued grow."""
        with self.lock:
            row = self._row(behavior, steps)
            row.received += steps
            row.queued += steps

    def reject(self, behavior: str, reason: str, steps: int) -> None:
        """Notes steps that were refused on arrival: received and dropped grow."""
        with self.lock:
            row = self._row(behavior, steps)
            row.received += steps
            row.dropped[reason] += steps

    def trained(self, behavior: str, steps: int) -> None:
        """Notes queued steps whose update completed, or that entered replay memory.

        Raises:
            LedgerError: fewer steps are queued.
        """
        with self.lock:
            self._leave_queue(behavior, steps).trained += steps

    def drop_queued(self, behavior: str, reason: str, steps: int) -> None:
        """Notes queued steps that will not be trained.

        Raises:
            LedgerError: fewer steps are queued.
        """
        with self.lock:
            self._leave_queue(behavior, steps).dropped[reason] += steps

    def lose(self, behavior: str, event: str, steps: int, *, queued: bool) -> None:
        """Notes steps that an event took.

        Args:
            behavior: the behavior's name.
            event: ``restart``, ``rollback``.
            steps: how many.
            queued: True if they stood in these books as queued; False if these books never saw them (an actor knows
                of them), so that received grows too.

        Raises:
            LedgerError: queued, and fewer steps are.
        """
        with self.lock:
            row = self._leave_queue(behavior, steps) if queued else self._row(behavior, steps)
            if not queued:
                row.received += steps
            row.lost[event] += steps

    def duplicate(self, behavior: str, steps: int) -> None:
        """Notes steps of a chunk that had been settled before; outside the equation."""
        with self.lock:
            self._row(behavior, steps).duplicate += steps

    def unknown(self, behavior: str, sessions: int) -> None:
        """Sets how many sessions of an earlier generation have not come back."""
        with self.lock:
            self._row(behavior, sessions).unknown_sessions = sessions

    def books(self, behavior: str) -> LedgerBooks:
        """Returns the books of a behavior; zeros if nothing is known of it."""
        with self.lock:
            row = self._rows.get(behavior, _Row())
            return LedgerBooks(
                received=row.received,
                trained=row.trained,
                dropped=dict(+row.dropped),  # without reasons that never took a step
                queued=row.queued,
                lost=dict(+row.lost),
                duplicate=row.duplicate,
                unknown_sessions=row.unknown_sessions,
            )

    def behaviors(self) -> tuple[str, ...]:
        """Returns the names of all behaviors in the books."""
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
                }
                for name, row in self._rows.items()
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from a checkpoint: what was queued in the process that wrote it is lost{restart}.

        Raises:
            LedgerError: the saved books do not balance.
            AttributeError, KeyError, TypeError, ValueError: they are none.
        """
        rows: dict[str, _Row] = {}
        for name, saved in state.items():
            row = _Row(
                received=count(saved, "received", most=_MAX_BOOKED),
                trained=count(saved, "trained", most=_MAX_BOOKED),
                dropped=_by_word(saved["dropped"]),
                lost=_by_word(saved["lost"]),
                duplicate=count(saved, "duplicate", most=_MAX_BOOKED),
            )
            queued = count(saved, "queued", most=_MAX_BOOKED)
            if queued:
                row.lost[RESTART] += queued
            if row.received != row.trained + row.dropped.total() + row.lost.total():
                raise LedgerError(
                    f"the books of {name} do not balance: received {row.received}, trained {row.trained}, dropped "
                    f"{row.dropped.total()}, lost {row.lost.total()}, and {queued} of these were queued"
                )
            rows[str(name)] = row
        with self.lock:
            self._rows = rows

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Makes a ledger that continues from a checkpoint; see `load_state_dict`."""
        ledger = cls()
        ledger.load_state_dict(state)
        return ledger

    def _row(self, behavior: str, steps: int) -> _Row:
        if steps < 0:
            raise LedgerError(f"{steps} steps of {behavior}: a number of steps cannot be negative")
        return self._rows.setdefault(behavior, _Row())

    def _leave_queue(self, behavior: str, steps: int) -> _Row:
        row = self._row(behavior, steps)
        if steps > row.queued:
            raise LedgerError(f"{steps} steps of {behavior} cannot leave the queue: the books hold {row.queued} there")
        row.queued -= steps
        return row


def _by_word(counts: Mapping[Any, Any]) -> Counter[str]:
    return Counter({str(word): count(counts, word, most=_MAX_BOOKED) for word in counts})
