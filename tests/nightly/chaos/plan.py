"""The faults of a run, other events, and their times, drawn by a seed."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass

from tests.nightly.chaos.injection import CALLS, OF_CALLS, OF_STREAMS, STREAMS, CallFault, Kind

REFERENCE_SECONDS = 600.0
"""The counts of `COUNTS` are those of a run of this length; a shorter one has fewer events, and shorter stops."""
QUIET_SECONDS = 30.0
"""At the start and at the end of the reference run nothing happens for so long: what the processes need then is the measure
of what they need amid faults. 475 must be reached amid faults, not because of a quiet end."""
FEWEST_QUIET_SECONDS = 15.0
FROZEN_SECONDS = 30.0
FEWEST_FROZEN_SECONDS = 20.0
MOST_DELAY_SECONDS = 3.0
MOST_MESSAGES = 20
HOURS = (3.0, -5.0, 48.0, -0.5)


class What(enum.Enum):
    """A fault, or an action of operators."""

    KILL_LEARNER = enum.auto()
    END_LEARNER = enum.auto()
    KILL_STARTING = enum.auto()
    FREEZE_LEARNER = enum.auto()
    KILL_TRAINERS = enum.auto()
    KILL_ACTOR = enum.auto()
    FREEZE_ACTOR = enum.auto()
    REPLACE_ACTOR = enum.auto()
    CUT = enum.auto()
    STALL = enum.auto()
    FAIL_CALL = enum.auto()
    FAIL_STREAM = enum.auto()
    FILL_DISK = enum.auto()
    TAKE_DESCRIPTORS = enum.auto()
    SET_CLOCK = enum.auto()
    ADD_ACTOR = enum.auto()
    REMOVE_ACTOR = enum.auto()
    PAUSE = enum.auto()
    SAVE = enum.auto()
    CHECK_BOOKS = enum.auto()


RESTARTS = (What.KILL_LEARNER, What.END_LEARNER)
KILLS_OF_LEARNER = (What.KILL_LEARNER, What.KILL_STARTING)
OF_ACTORS = (What.KILL_ACTOR, What.FREEZE_ACTOR, What.REPLACE_ACTOR)
CUTS = (What.CUT, What.STALL)
OF_OPERATORS = (What.ADD_ACTOR, What.REMOVE_ACTOR, What.PAUSE, What.SAVE, What.CHECK_BOOKS)
"""These are no faults."""
COUNTS = {
    What.KILL_LEARNER: 8,
    What.END_LEARNER: 3,
    What.KILL_STARTING: 2,
    What.FREEZE_LEARNER: 2,
    What.KILL_TRAINERS: 4,
    What.KILL_ACTOR: 14,
    What.FREEZE_ACTOR: 5,
    What.REPLACE_ACTOR: 3,
    What.CUT: 30,
    What.STALL: 12,
    What.FAIL_CALL: 50,
    What.FAIL_STREAM: 60,
    What.FILL_DISK: 4,
    What.TAKE_DESCRIPTORS: 4,
    What.SET_CLOCK: 5,
    What.ADD_ACTOR: 4,
    What.REMOVE_ACTOR: 4,
    What.PAUSE: 2,
    What.SAVE: 3,
    What.CHECK_BOOKS: 15,
}
LONG = {What.FREEZE_ACTOR, What.REPLACE_ACTOR}
"""These last for `Plan.frozen_seconds`, and must be over at the end."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event.

    Attributes:
        at_seconds: Since the run began.
        what: Happens.
        call: The fault of a call; None for other events.
        amount: Hours of the clock, or seconds of a stop; 0 where neither matters.
    """

    at_seconds: float
    what: What
    call: CallFault | None = None
    amount: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule.

    Attributes:
        seconds: Its length.
        seed: Of the draws, and of whom an event meets.
        quiet_seconds: Without an event, at the start and at the end.
        frozen_seconds: How long an actor is stopped; longer than the lease.
        lease_seconds: Of sessions.
        events: In the order of time.
    """

    seconds: float
    seed: int
    quiet_seconds: float
    frozen_seconds: float
    lease_seconds: float
    events: tuple[Event, ...]

    def count(self, *kinds: What) -> int:
        """Returns how many events of these kinds there are."""
        return sum(event.what in kinds for event in self.events)

    @property
    def faults(self) -> int:
        """Returns the number of faults; killing a learner that starts kills it twice."""
        return sum(event.what not in OF_OPERATORS for event in self.events) + self.count(What.KILL_STARTING)

    @property
    def kills_of_learner(self) -> int:
        """Returns how often the learner is killed."""
        return self.count(*KILLS_OF_LEARNER) + self.count(What.KILL_STARTING)


def draw(seconds: float, seed: int) -> Plan:
    """Draws a run of so many seconds.

    Events of a kind are spread over the run, one in each of equal parts; kills and orderly ends of the learner take
    turns in an order that is drawn.
    """
    generator = random.Random(seed)
    scale = seconds / REFERENCE_SECONDS
    quiet_seconds = max(FEWEST_QUIET_SECONDS, QUIET_SECONDS * min(1.0, scale))
    frozen_seconds = max(FEWEST_FROZEN_SECONDS, FROZEN_SECONDS * min(1.0, scale))
    events = []
    kinds = [what for what in RESTARTS for _ in range(max(1, round(COUNTS[what] * scale)))]
    generator.shuffle(kinds)
    times = _spread(generator, quiet_seconds, seconds - quiet_seconds, len(kinds))
    events += [Event(at, what) for at, what in zip(times, kinds, strict=True)]
    for what, count in COUNTS.items():
        if what not in RESTARTS:
            last = seconds - quiet_seconds - (frozen_seconds if what in LONG else 0.0)
            for at in _spread(generator, quiet_seconds, last, max(1, round(count * scale))):
                call, amount = _details(generator, what)
                events.append(Event(at, what, call, amount))
    events.sort(key=lambda event: event.at_seconds)
    return Plan(seconds, seed, quiet_seconds, frozen_seconds, frozen_seconds / 2, tuple(events))


def _details(generator: random.Random, what: What) -> tuple[CallFault | None, float]:
    match what:
        case What.FAIL_CALL:
            seconds = generator.uniform(0.1, MOST_DELAY_SECONDS)
            # Most calls are renewals; a fault of an opening waits until the actor reconnects.
            method = generator.choice((*CALLS[:2], *("RenewSession",) * 6, *CALLS[3:]))
            return CallFault(generator.choice(OF_CALLS), method, seconds=seconds), 0.0
        case What.FAIL_STREAM:
            seconds, message = generator.uniform(0.1, MOST_DELAY_SECONDS), generator.randint(1, MOST_MESSAGES)
            method, is_after = generator.choice(STREAMS), generator.random() < 0.5
            # An actor only reads a subscription.
            kinds = OF_STREAMS if method == "Upload" else (Kind.BREAK_READ, Kind.STALL_READ)
            return CallFault(generator.choice(kinds), method, message, is_after, seconds), 0.0
        case What.SET_CLOCK:
            return None, generator.choice(HOURS)
        case What.STALL | What.FILL_DISK | What.TAKE_DESCRIPTORS:
            return None, generator.uniform(1.0, MOST_DELAY_SECONDS)
    return None, 0.0


def _spread(generator: random.Random, first: float, last: float, count: int) -> list[float]:
    part = (last - first) / count
    return [first + part * (number + generator.uniform(0.1, 0.7)) for number in range(count)]
