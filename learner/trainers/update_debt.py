"""How many updates are owed: one for every so many steps, counted exactly, over restarts and changes of settings too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learner.common.saved_values import number


class UpdateDebt:
    """Steps come in, updates pay for them.

    The first steps owe nothing: they only fill the memory, so that the first updates do not draw the same few again and
    again. After a restart without the memory this begins anew.

    Args:
        steps_per_update: steps that each update pays for.
        free_steps: how many first steps owe nothing.

    Attributes:
        free_steps: how many more steps will owe nothing.
    """

    def __init__(self, steps_per_update: float, free_steps: int) -> None:
        self.free_steps = free_steps
        self._steps_per_update = steps_per_update
        self._before = 0.0  # unpaid when counting began, in steps
        self._steps = 0
        self._updates = 0

    @property
    def unpaid_steps(self) -> float:
        """Steps that owe and are not paid for."""
        return max(0.0, self._before + (self._steps - self._updates * self._steps_per_update))

    @property
    def owed(self) -> int:
        """Whole updates that are owed."""
        # A step owes 1 / steps_per_update; what rounding takes from a whole number is given back.
        return int(self.unpaid_steps / self._steps_per_update + 1e-9)

    def add(self, steps: int) -> None:
        """Takes in steps."""
        free = min(steps, self.free_steps)
        self.free_steps -= free
        self._steps += steps - free

    def pay(self, updates: int = 1) -> None:
        """Pays with updates that are owed."""
        self._updates += updates

    def state_dict(self) -> dict[str, Any]:
        """Returns what is unpaid; how full the memory is, only the memory knows."""
        return {"unpaid_steps": self.unpaid_steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a saved state.

        Raises:
            KeyError, TypeError, ValueError: it does not fit.
        """
        self._before, self._steps, self._updates = number(state, "unpaid_steps", least=0.0), 0, 0
