"""Values that change over a run."""

from __future__ import annotations

from dataclasses import dataclass

from learner.settings.base import Schedule

LEARNING_RATE_FLOOR = 1e-10
EPSILON_FLOOR = 0.1
BETA_FLOOR = 1e-5


@dataclass(frozen=True, slots=True)
class ScheduledValue:
    """A value that stays, or falls in a straight line to a floor over ``max_steps``; the floors are ML-Agents'.

    Attributes:
        kind: ``constant`` or ``linear``.
        initial: the value at step 0.
        floor: where a linear value ends; one that starts below its floor stays where it starts.
        max_steps: when it gets there.
    """

    kind: Schedule
    initial: float
    floor: float
    max_steps: int

    def at(self, step: int) -> float:
        """Returns the value at a step."""
        if self.kind == "constant" or self.initial <= self.floor:
            return self.initial
        left = 1.0 - min(step, self.max_steps) / self.max_steps
        return self.floor + (self.initial - self.floor) * left
