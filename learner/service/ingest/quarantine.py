"""Shuts out places whose actors break the form of the protocol again and again.

A place is an actor name of a principal. Only faults of form count (malformed bytes, wrong types or shapes, exceeded
limits): they are bugs of a client or attacks, and each costs the learner time that honest actors lack. Rows that are
refused for their data are events of training and never count.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from rollcast.errors import BadRequest, BadSpec, CreditExceeded, MalformedChunk, NotQuarantined, Quarantined

from learner.service.ingest.session import MAX_ERROR_CHARACTERS
from learner.shared.observe.view import QuarantineView

FORM_FAULTS: Final = (MalformedChunk, BadRequest, BadSpec, CreditExceeded)
MAX_FAULTS: Final = 3
"""Faults within `FAULT_SECONDS` that shut a place out."""
FAULT_SECONDS: Final = 600.0
SHORTEST_SECONDS: Final = 60.0
"""Length of the first quarantine of a place; each further one is twice as long."""
LONGEST_SECONDS: Final = 3600.0
"""Length of the longest quarantine, and the time without a fault after which a place begins with the shortest again."""
MAX_KEPT: Final = 4096
"""Most places remembered; the one with the oldest fault is forgotten first."""

Place = tuple[str, str]
"""Principal (empty if actors are not identified) and actor name."""


@dataclass(slots=True)
class _Record:
    """What is known of a place.

    Attributes:
        faults: Times of its faults since its last quarantine, in monotonic seconds.
        until: End of its quarantine.
        times: Number of its quarantines.
        last_fault: Text of its newest fault; untrusted.
        last_at: Time of its newest fault.
    """

    faults: deque[float] = field(default_factory=deque)
    until: float = 0.0
    times: int = 0
    last_fault: str = ""
    last_at: float = 0.0


class Quarantine:
    """Counts faults of form and decides which places are shut out; thread-safe.

    It is not part of a checkpoint: a learner that restarts shuts no place out.

    Args:
        clock: Returns monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._records: OrderedDict[Place, _Record] = OrderedDict()

    def note(self, place: Place, fault: Exception) -> float | None:
        """Counts a fault; returns the seconds for which it shuts the place out, None if it does not.

        Args:
            place: The place.
            fault: One of `FORM_FAULTS`.
        """
        with self._lock:
            now = self._clock()
            record = self._records.pop(place, None)
            if record is None or now - max(record.last_at, record.until) > LONGEST_SECONDS:
                record = _Record()
            self._records[place] = record
            if len(self._records) > MAX_KEPT:
                self._records.popitem(last=False)
            record.last_fault, record.last_at = str(fault)[:MAX_ERROR_CHARACTERS], now
            if record.until > now:
                return None  # its streams are about to end
            record.faults.append(now)
            while now - record.faults[0] > FAULT_SECONDS:
                record.faults.popleft()
            if len(record.faults) < MAX_FAULTS:
                return None
            seconds = min(LONGEST_SECONDS, SHORTEST_SECONDS * 2.0 ** min(record.times, 32))
            record.faults.clear()
            record.until = now + seconds
            record.times += 1
            return seconds

    def check(self, place: Place) -> None:
        """Refuses a place that is shut out.

        Raises:
            Quarantined: It is shut out.
        """
        with self._lock:
            record = self._records.get(place)
            seconds = 0.0 if record is None else record.until - self._clock()
        if record is not None and seconds > 0:
            raise Quarantined(
                f"actor {place[1]!r} is shut out for {seconds:.0f} s more after {MAX_FAULTS} faults of form within "
                f"{FAULT_SECONDS / 60:.0f} minutes; the last: {record.last_fault}. Correct the actor; an operator lets it "
                "in earlier with rollcast release",
                retry_after_seconds=seconds,
                metadata={"times": str(record.times)},
            )

    def release(self, actor_name: str, principal: str | None = None) -> int:
        """Lets places in again and forgets their faults; returns their number.

        Args:
            actor_name: Name of the actor.
            principal: Its principal; None releases the actor of this name of every principal.

        Raises:
            NotQuarantined: There is no such place.
        """
        with self._lock:
            now = self._clock()
            chosen = [
                place
                for place, record in self._records.items()
                if place[1] == actor_name and principal in {None, place[0]} and record.until > now
            ]
            for place in chosen:
                del self._records[place]
        if not chosen:
            raise NotQuarantined(
                f"no actor {actor_name[:256]!r} is shut out; rollcast status lists those that are",
                metadata={"actor": actor_name[:256]},
            )
        return len(chosen)

    def view(self) -> tuple[QuarantineView, ...]:
        """Returns the places that are shut out, the newest quarantine last."""
        with self._lock:
            now = self._clock()
            return tuple(
                QuarantineView(
                    principal=principal,
                    name=name,
                    seconds_left=record.until - now,
                    times=record.times,
                    fault=record.last_fault,
                )
                for (principal, name), record in self._records.items()
                if record.until > now
            )
