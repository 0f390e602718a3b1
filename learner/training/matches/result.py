"""Results of evaluations."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from learner.link.matches import Game
from learner.training.matches.rating import SeatResults


@dataclass(frozen=True, slots=True)
class Spread:
    """Mean, standard deviation (of the values themselves, not an estimate), minimum and maximum of some values."""

    mean: float
    std: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns the spread of at least one value."""
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return cls(mean, math.sqrt(variance), min(values), max(values))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """Result of one behavior's evaluation.

    Attributes:
        behavior: Name of the behavior.
        step: Trainer steps of the policy.
        version: Version of the policy.
        is_deterministic: Whether the mode of the distribution acted.
        episodes: Number of whole episodes.
        returns: Returns of the episodes, including those of their groups.
        lengths: Lengths of the episodes in steps.
        is_complete: Whether all requested episodes were played.
        opponents: Games against each opponent, as seen by the policy under evaluation; empty for an evaluation without opponents.
        rating: Points above the first opponent that the run named, by all evaluations of the run; None without opponents.
        rating_error: Half of the 95 % interval of the rating, in points.
        principals: Principals whose actors played; empty if actors are not identified.
    """

    behavior: str
    step: int
    version: int
    is_deterministic: bool
    episodes: int
    returns: Spread
    lengths: Spread
    is_complete: bool = True
    opponents: tuple[SeatResults, ...] = ()
    rating: float | None = None
    rating_error: float | None = None
    principals: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        behavior: str,
        played: Collection[Game],
        *,
        step: int,
        version: int,
        is_deterministic: bool,
        is_complete: bool = True,
    ) -> EvaluationResult:
        """Returns the result of at least one episode."""
        return cls(
            behavior=behavior,
            step=step,
            version=version,
            is_deterministic=is_deterministic,
            episodes=len(played),
            returns=Spread.of([episode.total for episode in played]),
            lengths=Spread.of([float(episode.length) for episode in played]),
            is_complete=is_complete,
        )

    def document(self) -> dict[str, Any]:
        """Returns the result as a JSON object; without opponents, it has neither them nor a rating."""
        found = asdict(self)
        if not self.principals:
            del found["principals"]
        if self.rating is None:
            for name in ("opponents", "rating", "rating_error"):
                del found[name]
        return found
