"""Values that change over a run."""

from __future__ import annotations

import math
from dataclasses import dataclass

from learner.shared.settings.base import Schedule

LEARNING_RATE_FLOOR = 1e-10
EPSILON_FLOOR = 0.1
BETA_FLOOR = 1e-5


@dataclass(frozen=True, slots=True)
class ScheduledValue:
    """A value that is constant, or falls to a floor over ``max_steps``; the floors are those of ML-Agents.

    Attributes:
        kind: ``constant``, ``linear``, or ``cosine`` (Loshchilov and Hutter 2017, arXiv:1608.03983, equation 5, without
            restarts).
        initial: The value at step 0, after the warm-up.
        floor: Final value; a value that starts below its floor stays constant.
        max_steps: Step at which the floor is reached.
        warmup_steps: Steps over which the value also rises linearly from 0.
    """

    kind: Schedule
    initial: float
    floor: float
    max_steps: int
    warmup_steps: int = 0

    def at(self, step: int) -> float:
        """Returns the value at a step."""
        rise = min(1.0, step / self.warmup_steps) if self.warmup_steps else 1.0
        if self.kind == "constant" or self.initial <= self.floor:
            return self.initial * rise
        done = min(step, self.max_steps) / self.max_steps
        left = 0.5 * (1.0 + math.cos(math.pi * done)) if self.kind == "cosine" else 1.0 - done
        return (self.floor + (self.initial - self.floor) * left) * rise
