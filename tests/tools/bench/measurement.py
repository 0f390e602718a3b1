"""The results of a measurement, or the reason if there are none."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Protocol, Self

TARGET_RETURN = 475.0
"""Mean return of the last 100 episodes at which CartPole-v1 counts as solved."""

STEPS_PER_SECOND = "steps_per_second"
SECONDS_TO_TARGET = "seconds_to_target"
STEPS_TO_TARGET = "steps_to_target"
OTHERS_CORES = "others_cores"
"""Cores in use by other processes just before the measurement."""


class MeasurementFailed(Exception):  # noqa: N818 - says what happened, like the classes of rollcast.errors
    """A measurement failed; the message says why."""


class Unavailable(Exception):  # noqa: N818 - see above
    """Raised if this machine cannot measure something; the message says why."""


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one measurement.

    Attributes:
        values: By name; a training that did not reach the target has no `seconds_to_target`.
        note: What a reader must know about them; empty if nothing.
        round_index: The round they are from, from 0.
    """

    values: Mapping[str, float]
    note: str = ""
    round_index: int = 0


class Contestant(Protocol):
    """An object that is measured once a round.

    Attributes:
        name: For options and for the JSON file.
        title: What the table calls it; final once `prepare` has returned.
    """

    name: str
    title: str

    def prepare(self) -> None:
        """Does slow one-time work, such as an installation; raises `Unavailable` if it cannot be measured here."""

    def measure(self, round_index: int) -> Figures:
        """Measures once, with seeds that grow from the round, from 0; raises `MeasurementFailed` without figures."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Several values of one figure."""

    median: float
    lowest: float
    highest: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Returns that of some values; at least one is needed."""
        return cls(median(values), min(values), max(values), len(values))


@dataclass(slots=True)
class Series:
    """All measurements of one contestant."""

    name: str
    title: str
    rounds: list[Figures] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    unavailable: str | None = None

    def spread(self, figure: str) -> Spread | None:
        """Returns median and extremes of a figure over the rounds that have it; None if none has."""
        values = [figures.values[figure] for figures in self.rounds if figure in figures.values]
        return Spread.of(values) if values else None
