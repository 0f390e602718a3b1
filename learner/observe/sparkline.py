"""A line of little bars: how a number went over the whole run, in a fixed number of characters."""

from __future__ import annotations

import math

BARS = "▁▂▃▄▅▆▇█"


class History:
    """Keeps at most ``capacity`` means of equally many consecutive values each, over everything added.

    When it is full, neighbours merge and every later point stands for twice as many values: a run of any length fits,
    seen evenly from its first value to its last.

    Args:
        capacity: most points kept; even.
    """

    def __init__(self, capacity: int = 40) -> None:
        if capacity < 2 or capacity % 2:
            raise ValueError(f"capacity must be even and at least 2, got {capacity}")
        self._capacity = capacity
        self._points: list[float] = []
        self._stride = 1
        self._pending: list[float] = []

    def add(self, value: float) -> None:
        """Adds a value; one that is not finite is left out."""
        if not math.isfinite(value):
            return
        self._pending.append(value)
        if len(self._pending) < self._stride:
            return
        self._points.append(_mean(self._pending))
        self._pending.clear()
        if len(self._points) == self._capacity:
            self._points = [_mean(self._points[i : i + 2]) for i in range(0, self._capacity, 2)]
            self._stride *= 2

    @property
    def points(self) -> tuple[float, ...]:
        """The points so far, oldest first; the last one may stand for fewer values."""
        return (*self._points, _mean(self._pending)) if self._pending else tuple(self._points)


def sparkline(points: tuple[float, ...]) -> str:
    """Returns one bar per point, the lowest point as the lowest bar and the highest as the highest."""
    if not points:
        return ""
    lowest, highest = min(points), max(points)
    spread = highest - lowest
    if spread <= 0 or not math.isfinite(spread):
        return BARS[0] * len(points)
    return "".join(BARS[round((point - lowest) / spread * (len(BARS) - 1))] for point in points)


def _mean(values: list[float]) -> float:
    return math.fsum(value / len(values) for value in values)
