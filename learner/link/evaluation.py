"""What an evaluation came to."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Played:
    """One finished episode of an evaluation.

    Attributes:
        total: its return, with that of its group where there is one.
        length: steps.
    """

    total: float
    length: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How some numbers are spread: mean, standard deviation (of these numbers, not an estimate for others), extremes."""

    mean: float
    std: float
    min: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Returns that of some values, at least one."""
        mean = math.fsum(values) / len(values)
        variance = math.fsum((value - mean) ** 2 for value in values) / len(values)
        return cls(mean, math.sqrt(variance), min(values), max(values))


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """One behavior.

    Attributes:
        behavior: its name.
        step: trainer steps of the policy.
        version: of the policy.
        is_deterministic: whether the mode of the distribution acted.
        episodes: how many, all of them whole.
        returns: of the episodes, those of their groups included.
        lengths: in steps.
        is_complete: all episodes that were asked for were played.
    """

    behavior: str
    step: int
    version: int
    is_deterministic: bool
    episodes: int
    returns: Spread
    lengths: Spread
    is_complete: bool = True

    @classmethod
    def of(
        cls,
        behavior: str,
        played: Collection[Played],
        *,
        step: int,
        version: int,
        is_deterministic: bool,
        is_complete: bool = True,
    ) -> EvaluationResult:
        """Returns that of some episodes, at least one."""
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
        """Returns it as JSON has it."""
        return asdict(self)
