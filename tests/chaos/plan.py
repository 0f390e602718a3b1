"""The events of a run and their times, drawn by a seed."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

REFERENCE_SECONDS = 300.0
"""The counts of `COUNTS` are those of a run of this length; a shorter one has fewer events, and shorter stops."""
SETTLE_SECONDS = 12.0
"""At the start and at the end nothing happens for so long: 475 shall be seen amid faults, not because of a quiet end."""
FROZEN_SECONDS = 60.0


class What(enum.Enum):
    """A fault, or an action of operators."""

    KILL_LEARNER = enum.auto()
    END_LEARNER = enum.auto()
    KILL_STARTING = enum.auto()
    FREEZE_LEARNER = enum.auto()
    KILL_ACTOR = enum.auto()
    FREEZE_ACTOR = enum.auto()
    REPLACE_ACTOR = enum.auto()
    ADD_ACTOR = enum.auto()
    REMOVE_ACTOR = enum.auto()
    PAUSE = enum.auto()
    SAVE = enum.auto()


RESTARTS = (What.KILL_LEARNER, What.END_LEARNER)
COUNTS = {
    What.KILL_LEARNER: 5,
    What.END_LEARNER: 5,
    What.KILL_STARTING: 2,
    What.FREEZE_LEARNER: 1,
    What.KILL_ACTOR: 6,
    What.FREEZE_ACTOR: 4,
    What.REPLACE_ACTOR: 3,
    What.ADD_ACTOR: 4,
    What.REMOVE_ACTOR: 4,
    What.PAUSE: 2,
    What.SAVE: 3,
}
LONG = {What.FREEZE_ACTOR, What.REPLACE_ACTOR}
"""These last for `Plan.frozen_seconds`, and must be over at the end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        at_seconds: Since the run began.
        what: Happens.
    """

    at_seconds: float
    what: What


@dataclass(frozen=True, slots=True)
class Plan:
    """A sequence of events.

    Attributes:
        seconds: Its length.
        seed: Of the draws, and of whom an event meets.
        frozen_seconds: How long an actor is stopped; longer than the lease.
        lease_seconds: Of sessions.
        events: In the order of time.
    """

    seconds: float
    seed: int
    frozen_seconds: float
    lease_seconds: float
    events: tuple[Event, ...]

    def count(self, *kinds: What) -> int:
        """Returns how many events of these kinds there are."""
        return sum(event.what in kinds for event in self.events)


def draw(seconds: float, seed: int) -> Plan:
    """Draws a run of so many seconds.

    Events of a kind are spread over the run, one in each of equal parts; kills and orderly ends of the learner take
    turns in an order that is drawn.
    """
    generator = random.Random(seed)
    scale = seconds / REFERENCE_SECONDS
    frozen_seconds = FROZEN_SECONDS * min(1.0, scale)
    events = [Event(at, what) for at, what in _restarts(generator, seconds, scale)]
    for what, count in COUNTS.items():
        if what not in RESTARTS:
            last = seconds - SETTLE_SECONDS - (frozen_seconds if what in LONG else 0.0)
            times = _spread(generator, SETTLE_SECONDS, last, max(1, round(count * scale)))
            events += [Event(at, what) for at in times]
    events.sort(key=lambda event: event.at_seconds)
    return Plan(seconds, seed, frozen_seconds, frozen_seconds / 4, tuple(events))


def _restarts(generator: random.Random, seconds: float, scale: float) -> list[tuple[float, What]]:
    kinds = [what for what in RESTARTS for _ in range(max(1, round(COUNTS[what] * scale)))]
    generator.shuffle(kinds)
    times = _spread(generator, SETTLE_SECONDS, seconds - SETTLE_SECONDS, len(kinds))
    return list(zip(times, kinds, strict=True))


def _spread(generator: random.Random, first: float, last: float, count: int) -> list[float]:
    part = (last - first) / count
    return [first + part * (number + generator.uniform(0.1, 0.7)) for number in range(count)]
