"""How the newest episodes of a behavior went, as far as lessons ask for them."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Mapping

from learner.common.saved_values import numbers
from learner.settings.parameters import CompletionCriteria, ParameterSettings

_MAX_EPISODES = 10**6
"""Kept of one behavior, however long a lesson shall be at least: the mean of more would not be told from it."""
_OLD_SHARE = 0.25
"""Of the smoothed reward before, in the next one (ML-Agents' number)."""


class ReturnBuffers:
    """The returns of the newest episodes, for each behavior that a lesson looks at.

    As many are kept as the longest `min_lesson_length` of those lessons, and one at least.

    Args:
        parameters: all environment parameters.
    """

    def __init__(self, parameters: Mapping[str, ParameterSettings]) -> None:
        lengths: dict[str, int] = {}
        for settings in parameters.values():
            for lesson in settings.curriculum:
                criteria = lesson.completion_criteria
                if criteria is not None:
                    longest = max(criteria.min_lesson_length, lengths.get(criteria.behavior, 1))
                    lengths[criteria.behavior] = min(longest, _MAX_EPISODES)
        self._buffers = {name: deque[float](maxlen=length) for name, length in lengths.items()}

    def add(self, behavior: str, value: float) -> bool:
        """Adds the return of an episode; says whether any lesson looks at this behavior."""
        buffer = self._buffers.get(behavior)
        if buffer is None or not math.isfinite(value):
            return False
        buffer.append(value)
        return True

    def clear(self) -> None:
        """Forgets the episodes of all behaviors."""
        for buffer in self._buffers.values():
            buffer.clear()

    def is_long_enough(self, criteria: CompletionCriteria) -> bool:
        """Returns whether there are as many episodes as a lesson needs."""
        return len(self._buffers[criteria.behavior]) >= min(criteria.min_lesson_length, _MAX_EPISODES)

    def reward(self, criteria: CompletionCriteria, smoothed: float) -> float | None:
        """Returns the mean return, smoothed if the lesson wants it so; None without episodes.

        Args:
            criteria: of the lesson.
            smoothed: what this returned for the same parameter the last time, 0 at first.
        """
        buffer = self._buffers[criteria.behavior]
        if not buffer:
            return None
        mean = sum(buffer) / len(buffer)
        return _OLD_SHARE * smoothed + (1.0 - _OLD_SHARE) * mean if criteria.signal_smoothing else mean

    def state_dict(self) -> dict[str, list[float]]:
        """Returns all buffers."""
        return {name: list(buffer) for name, buffer in self._buffers.items()}

    def load_state_dict(self, state: Mapping[str, Iterable[float]]) -> None:
        """Goes on from `state`; behaviors that no lesson looks at any more are left out.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        for name in state:
            if name in self._buffers:
                self._buffers[name].clear()
                self._buffers[name].extend(numbers(state, name))
