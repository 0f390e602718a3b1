"""Replaces NaN and infinity in players' data, and counts and names them, so that they are never trained on."""

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_MAX_SHOWN_AGENTS: Final = 4


def zero_what_is_not_finite(values: NDArray[Any]) -> NDArray[np.bool_] | None:
    """Replaces NaN and infinity by 0 in place.

    Args:
        values: Floats [n, ...]; changed.

    Returns:
        The rows with replaced values, bool [n]; None if there are none.
    """
    finite = np.isfinite(values)
    if finite.all():
        return None
    values[~finite] = 0
    rows: NDArray[np.bool_] = ~finite.reshape(len(values), -1).all(axis=1)
    return rows


class FaultyRows:
    """Counts the faulty rows of one behavior, and reports the first and each doubling of their number."""

    __slots__ = ("_next", "_total")

    def __init__(self) -> None:
        self._total = 0
        self._next = 1

    def line(self, ids: NDArray[np.int64], parts: dict[str, NDArray[np.bool_]]) -> str | None:
        """Counts the rows of one message and returns a line for the log, or None.

        Args:
            ids: Ids of the agents, int64 [n].
            parts: The parts that were not finite, by name, with their rows, bool [n] each.
        """
        rows = np.logical_or.reduce(list(parts.values()))
        agents = ids[rows].tolist()
        self._total += len(agents)
        if self._total < self._next:
            return None
        self._next = 2 * self._total
        others = len(agents) - _MAX_SHOWN_AGENTS
        return (
            f"NaN or infinity in {', '.join(parts)} of agent "
            f"{', '.join(map(str, agents[:_MAX_SHOWN_AGENTS]))}{f' and {others} more' if others > 0 else ''} "
            f"({self._total} rows so far): such rows are not trained; look for a division by zero or an exploding "
            "body in the scene"
        )
