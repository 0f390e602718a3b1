"""The curves of the status page: one sample per second, thinned out as the run gets longer."""

from __future__ import annotations

import bisect
import math
import threading
from array import array
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from learner.shared.observe.behavior_state import FIELDS
from learner.shared.saved_values import number

COLUMNS: Final = ("t", *(each.curve for each in FIELDS if each.curve))
"""``t`` is the time that learners of this run were up, in seconds, over all starts; losses and similar values are those
of the last update.
"""
MAX_POINTS: Final = 1000
MAX_MARKS: Final = 100


@dataclass(frozen=True, slots=True)
class HistoryView:
    """The curves of one behavior.

    Attributes:
        behavior: Name of the behavior.
        interval_seconds: Time between two points; doubles each time the history is full.
        columns: ``[N]`` values of each of `COLUMNS`, oldest first; None where a value is missing.
        marks: Times and texts of what has happened to the run, oldest first.
    """

    behavior: str
    interval_seconds: float
    columns: Mapping[str, list[float | None]]
    marks: tuple[tuple[float, str], ...] = ()


class History:
    """The curves of all behaviors, of bounded size. Thread-safe.

    A point is kept for every ``interval`` samples. Above ``max_points``, every second point is removed and the interval
    doubles: the curve covers the whole run at half the detail in the same memory.

    Args:
        sample_seconds: Interval between calls of `add`, in seconds.
        max_points: Most points of a behavior.
    """

    def __init__(self, *, sample_seconds: float = 1.0, max_points: int = MAX_POINTS) -> None:
        if max_points < 2:
            raise ValueError(f"max_points must be at least 2, got {max_points}")
        self._sample_seconds = sample_seconds
        self._max_points = max_points
        self._lock = threading.Lock()
        self._curves: dict[str, _Curves] = {}
        self._before_seconds = 0.0
        self._marks: deque[tuple[float, str]] = deque(maxlen=MAX_MARKS)

    def state_dict(self) -> dict[str, dict[str, Any]]:
        """Returns the curves as plain values, for a checkpoint."""
        with self._lock:
            return {
                name: {
                    "interval": curves.interval,
                    "columns": {column: values.tolist() for column, values in curves.values.items()},
                }
                for name, curves in self._curves.items()
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores from `state_dict`; time continues where it ended.

        Raises:
            KeyError, TypeError, ValueError: The state is invalid.
        """
        loaded = {str(name): _Curves.restored(curves, self._max_points) for name, curves in state.items()}
        with self._lock:
            self._curves = loaded
            self._before_seconds = max((curves.values["t"][-1] for curves in loaded.values()), default=0.0)

    def add(self, behavior: str, t: float, sample: Mapping[str, float | None]) -> None:
        """Adds a sample.

        Args:
            behavior: Name of the behavior.
            t: Seconds since this start; at least those of the previous sample.
            sample: Values by the names of `COLUMNS`; a value that is missing, None or not finite is a gap.
        """
        with self._lock:
            curves = self._curves.get(behavior)
            if curves is None:
                curves = self._curves[behavior] = _Curves()
            curves.add({**sample, "t": self._before_seconds + t}, self._max_points)

    def mark(self, t: float, text: str) -> None:
        """Marks a time in all curves; the newest `MAX_MARKS` marks are kept.

        Args:
            t: Seconds since this start.
            text: What has happened.
        """
        with self._lock:
            self._marks.append((self._before_seconds + t, text))

    def marks(self) -> list[list[Any]]:
        """Returns the marks as plain values, for a checkpoint."""
        with self._lock:
            return [[*mark] for mark in self._marks]

    def load_marks(self, marks: Sequence[Any]) -> None:
        """Restores from `marks`.

        Raises:
            KeyError, TypeError, ValueError: The marks are invalid.
        """
        found = [(number({"t": t}, "t", least=0.0), str(text)) for t, text in marks]
        with self._lock:
            self._marks = deque(found, maxlen=MAX_MARKS)

    def behaviors(self) -> tuple[str, ...]:
        """Returns the names of all behaviors with curves."""
        with self._lock:
            return tuple(self._curves)

    def view(self, behavior: str, since: float = -math.inf) -> HistoryView | None:
        """Returns the points after a time, or None for a behavior without points."""
        with self._lock:
            curves = self._curves.get(behavior)
            if curves is None:
                return None
            first = bisect.bisect_right(curves.values["t"], since)
            columns = {name: [_plain(value) for value in column[first:]] for name, column in curves.values.items()}
            return HistoryView(behavior, curves.interval * self._sample_seconds, columns, tuple(self._marks))


class _Curves:
    """The points of one behavior, a float64 column each; NaN is a gap."""

    __slots__ = ("_samples", "interval", "values")

    def __init__(self) -> None:
        self.values = {name: array("d") for name in COLUMNS}
        self.interval = 1
        self._samples = 0

    @classmethod
    def restored(cls, state: Mapping[str, Any], max_points: int) -> Self:
        """Returns the curves of a checkpoint.

        Raises:
            KeyError, TypeError, ValueError: The state is invalid.
        """
        curves = cls()
        curves.values = columns = {name: array("d", state["columns"][name]) for name in COLUMNS}
        points = len(columns["t"])
        times = columns["t"].tolist()
        if not 0 < points <= max_points or times != sorted(times) or not all(map(math.isfinite, times)):
            raise ValueError(f"a curve has {points} points; it must have 1 to {max_points}, in order of time")
        if any(len(column) != points for column in columns.values()):
            raise ValueError("the columns of a curve must have one length")
        curves.interval = int(state["interval"])
        if curves.interval < 1:
            raise ValueError(f"a curve has a point every {curves.interval} samples; the interval must be at least 1")
        return curves

    def add(self, sample: Mapping[str, float | None], max_points: int) -> None:
        is_due = self._samples % self.interval == 0
        self._samples += 1
        if not is_due:
            return
        for name, column in self.values.items():
            value = sample.get(name)
            column.append(math.nan if value is None else value)
        if len(self.values["t"]) > max_points:
            self.values = {name: column[::2] for name, column in self.values.items()}
            self.interval *= 2


def _plain(value: float) -> float | None:
    return value if math.isfinite(value) else None
