"""What one measurement brings, and why one may bring nothing."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol

TARGET_RETURN = 475.0
"""Mean return of the last 100 episodes at which CartPole-v1 counts as solved."""

STEPS_PER_SECOND = "steps_per_second"
SECONDS_TO_TARGET = "seconds_to_target"
STEPS_TO_TARGET = "steps_to_target"
OTHERS_CORES = "others_cores"
"""How many cores were at work just before, for somebody else."""


class MeasurementFailed(Exception):  # noqa: N818 - says what happened, like the classes of rollcast.errors
    """A measurement brought no figures; the message says why."""


class Unavailable(Exception):  # noqa: N818 - see above
    """Something cannot be measured on this machine at all; the message says why."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one measurement.

    Attributes:
        values: by name; a training that did not reach the target has no `seconds_to_target`.
        note: what a reader must know about them; empty if nothing.
        round_index: the round they are from, from 0.
    """

    values: Mapping[str, float]
    note: str = ""
    round_index: int = 0


class Contestant(Protocol):
    """Something that is measured once a round."""

    @property
    def name(self) -> str:
        """A word for options and for the JSON file."""
        ...

    @property
    def title(self) -> str:
        """What the table calls it; final once `prepare` has returned."""
        ...

    def prepare(self) -> None:
        """Does what takes long and is done once, such as an installation.

        Raises:
            Unavailable: it cannot be measured here.
        """
        ...

    def measure(self, round_index: int) -> Figures:
        """Measures once.

        Args:
            round_index: from 0; seeds grow from it.

        Raises:
            MeasurementFailed: no figures this time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Spread:
    """Several values of one figure.

    Attributes:
        median: the middle one.
        lowest: the smallest one.
        highest: the largest one.
        count: how many there are.
    """

    median: float
    lowest: float
    highest: float
    count: int


@dataclass(slots=True)
class Series:
    """All measurements of one contestant.

    Attributes:
        name: of the contestant.
        title: of the contestant.
        rounds: its figures, in the order of the rounds.
        failures: why rounds brought nothing.
        unavailable: why it was never measured; None if it was.
    """

    name: str
    title: str
    rounds: list[Figures] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unavailable: str | None = None

    def spread(self, figure: str) -> Spread | None:
        """Returns median and extremes of a figure over the rounds that have it; None if none has."""
        values = [figures.values[figure] for figures in self.rounds if figure in figures.values]
        if not values:
            return None
        return Spread(median(values), min(values), max(values), len(values))

    def median(self, figure: str) -> float | None:
        """Returns the median of a figure; None if no round has it."""
        spread = self.spread(figure)
        return None if spread is None else spread.median
