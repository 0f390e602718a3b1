"""Keeps the values that lessons measure: the newest of each measure of each behavior."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from learner.shared.leave_one_out import Source, SourcedValues
from learner.shared.saved_values import numbers
from learner.shared.settings.parameters import CompletionCriteria, ParameterSettings

REWARD: Final = "reward"
GROUP_REWARD: Final = "group_reward"
EVALUATION: Final = "evaluation"
_STATISTIC: Final = "statistic "

_MAX_EPISODES: Final = 10**6
"""Most values kept of one measure, whatever the minimum lesson length: more would not change the mean noticeably."""
_OLD_SHARE: Final = 0.25
"""Weight of the previous smoothed mean (ML-Agents' number)."""


def statistic(name: str) -> str:
    """Returns the measure of a reported statistic, by its name in TensorBoard."""
    return _STATISTIC + name


def statistic_name(measure: str) -> str | None:
    """Returns the name of the statistic that a measure reads; None for other measures."""
    return measure.removeprefix(_STATISTIC) if measure.startswith(_STATISTIC) else None


class MeasureBuffers:
    """The newest values of each measure, for each behavior that a lesson measures.

    The number kept is the longest `min_lesson_length` of these lessons, and at least one. Lessons that measure progress
    count episodes by their returns.

    Args:
        parameters: All environment parameters.
    """

    def __init__(self, parameters: Mapping[str, ParameterSettings]) -> None:
        lengths: dict[tuple[str, str], int] = {}
        for settings in parameters.values():
            for lesson in settings.curriculum:
                criteria = lesson.completion_criteria
                if criteria is not None:
                    key = _key(criteria)
                    longest = max(criteria.min_lesson_length, lengths.get(key, 1))
                    lengths[key] = min(longest, _MAX_EPISODES)
        self._buffers = {key: deque[float](maxlen=length) for key, length in lengths.items()}
        self._sourced = {key: SourcedValues(length) for key, length in lengths.items()}
        behaviors = {behavior for behavior, _ in lengths}
        self._measures = {
            behavior: frozenset(measure for name, measure in lengths if name == behavior) for behavior in behaviors
        }

    def measures(self, behavior: str) -> frozenset[str]:
        """Returns the measures of a behavior that lessons use."""
        return self._measures.get(behavior, frozenset())

    def add(self, behavior: str, values: Mapping[str, float], source: Source | None = None) -> bool:
        """Adds values by measure; returns whether any lesson measures one of them. Values that are not finite are left out.

        Args:
            behavior: Name of the behavior.
            values: The values.
            source: The actor that reported them; None for values that several actors made together.
        """
        is_measured = False
        for measure in self.measures(behavior):
            value = values.get(measure)
            if value is not None and math.isfinite(value):
                self._buffers[behavior, measure].append(value)
                if source is not None:
                    self._sourced[behavior, measure].append(value, source)
                is_measured = True
        return is_measured

    def clear(self) -> None:
        """Forgets all values."""
        for buffer in self._buffers.values():
            buffer.clear()
        for values in self._sourced.values():
            values.clear()

    def least_mean(self, criteria: CompletionCriteria, present: Collection[Source]) -> float:
        """Returns the smallest mean of the values without any one of the present sources; see `SourcedValues`.

        Results of evaluations have no source: it is infinity.
        """
        if criteria.measure == EVALUATION:
            return math.inf
        return self._sourced[_key(criteria)].least_mean(present)

    def is_long_enough(self, criteria: CompletionCriteria) -> bool:
        """Returns whether there are as many values as a lesson requires."""
        return len(self._buffers[_key(criteria)]) >= min(criteria.min_lesson_length, _MAX_EPISODES)

    def mean(self, criteria: CompletionCriteria, smoothed: float) -> float | None:
        """Returns the mean of the values, smoothed if the lesson requests it; None without values.

        Args:
            criteria: Completion criteria of the lesson.
            smoothed: Previous result for the same parameter; 0 at first.
        """
        buffer = self._buffers[_key(criteria)]
        if not buffer:
            return None
        mean = sum(buffer) / len(buffer)
        return _OLD_SHARE * smoothed + (1.0 - _OLD_SHARE) * mean if criteria.signal_smoothing else mean

    def state_dict(self) -> dict[str, list[float]]:
        """Returns all buffers."""
        return {_name(*key): list(buffer) for key, buffer in self._buffers.items()}

    def sourced_state_dict(self) -> dict[str, Any]:
        """Returns all values with their sources."""
        return {_name(*key): values.state_dict() for key, values in self._sourced.items()}

    def load_state_dict(self, state: Mapping[str, Iterable[float]], sourced: Mapping[str, Any]) -> None:
        """Continues from `state_dict` and `sourced_state_dict`; leaves out what no lesson measures any more.

        Raises:
            TypeError, ValueError: The state is not one that was saved here.
        """
        for key, buffer in self._buffers.items():
            if (name := _name(*key)) in state:
                buffer.clear()
                buffer.extend(numbers(state, name))
            if name in sourced:
                self._sourced[key].load_state_dict(sourced[name])


def _key(criteria: CompletionCriteria) -> tuple[str, str]:
    """Returns behavior and measure of the values that a lesson reads."""
    if criteria.measure == "statistic":
        return criteria.behavior, statistic(criteria.statistic or "")
    return criteria.behavior, REWARD if criteria.measure == "progress" else criteria.measure


def _name(behavior: str, measure: str) -> str:
    """Returns the key of a buffer in the saved state."""
    return behavior if measure == REWARD else f"{behavior} {measure}"
