"""Which lesson each environment parameter is in, and when the next one begins."""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rollcast.enums import ResetMode
from rollcast.v1 import policy_pb2

from learner.common.saved_values import count, number, numbers
from learner.curriculum.samplers import seeded
from learner.observe.view import LessonView
from learner.settings.parameters import CompletionCriteria, ParameterSettings

_MAX_EPISODES = 10**6
"""Kept of one behavior, however long a lesson shall be at least: the mean of more would not be told from it."""
_OLD_SHARE = 0.25
"""Of the smoothed reward before, in the next one (ML-Agents' number)."""


@dataclass(frozen=True, slots=True)
class LessonChange:
    """A parameter that is in its next lesson.

    Attributes:
        parameter: its name.
        number: of the lesson that begins, from 0.
        lessons: how many there are.
        lesson: name of the lesson that begins.
        completed: name of the one before.
        require_reset: environments are to be reset for it.
    """

    parameter: str
    number: int
    lessons: int
    lesson: str
    completed: str
    require_reset: bool


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
        """Continues from `state_dict`; behaviors that no lesson looks at any more are left out.

        Raises:
            TypeError, ValueError: it is not what was saved.
        """
        for name in state:
            if name in self._buffers:
                self._buffers[name].clear()
                self._buffers[name].extend(numbers(state, name))


class Lessons:
    """All environment parameters of a run.

    A lesson is over when its measure is more than its threshold and there were as many episodes as it asks for. Only
    episodes count that began with the present parameters; a new lesson of any parameter begins with none. Lessons go
    forward, one at a time. It is looked after each episode, and whenever steps have come.

    Episodes and progress come from the trainer thread; everything else may be read from any thread.

    Args:
        parameters: the run file's, resolved; None if it has none.
        seed: of the run.

    Attributes:
        revision: grows with each change of the parameters; 0 if there are none.
        since_revision: the revision of the newest lesson: episodes with an older one are of earlier lessons. 0 before
            the first change.
    """

    def __init__(self, parameters: Mapping[str, ParameterSettings] | None, *, seed: int) -> None:
        self._parameters = dict(parameters or {})
        self._samplers = seeded(self._parameters, seed)
        self._numbers: Mapping[str, int] = dict.fromkeys(self._parameters, 0)
        self._smoothed = dict.fromkeys(self._parameters, 0.0)
        self._buffers = ReturnBuffers(self._parameters)
        self._progress: dict[str, float] = {}
        self._changes: list[LessonChange] = []
        self.revision = 1 if self._parameters else 0
        self.since_revision = 0

    def numbers(self) -> Mapping[str, int]:
        """Returns the number of the lesson that each parameter is in, from 0; in the run file's order."""
        return self._numbers

    def view(self) -> tuple[LessonView, ...]:
        """Returns what operators see."""
        return tuple(
            LessonView(
                name, number, len(self._parameters[name].curriculum), self._parameters[name].curriculum[number].name
            )
            for name, number in self._numbers.items()
        )

    def assignment(self, *, reset: bool = False) -> policy_pb2.Assignment | None:
        """Returns what actors are told; None if there are no parameters.

        Args:
            reset: environments shall begin anew at once.
        """
        if not self._parameters:
            return None
        mode = ResetMode.NOW if reset else ResetMode.NONE
        return policy_pb2.Assignment(
            settings_revision=self.revision,
            environment_parameters={name: self._samplers[name][number] for name, number in self._numbers.items()},
            parameter_order=self._parameters,
            reset=policy_pb2.ResetMode.ValueType(mode),
        )

    def add_episode(self, behavior: str, value: float, revision: int | None) -> None:
        """Notes a finished training episode.

        Args:
            behavior: its name, without a team.
            value: the return.
            revision: of the parameters it began with; None if the actor did not say: it has none to set.
        """
        if revision == self.revision and self._buffers.add(behavior, value):
            self._look()

    def note_progress(self, behavior: str, progress: float) -> None:
        """Notes that steps of a behavior have come.

        Args:
            behavior: its name.
            progress: its steps by its `max_steps`.
        """
        self._progress[behavior] = progress
        self._look()

    def take_changes(self) -> list[LessonChange]:
        """Returns what has changed since this was asked last."""
        changes, self._changes = self._changes, []
        return changes

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Begins in other lessons; parameters that do not exist are left out, numbers beyond the last mean the last."""
        fitting = {
            name: min(max(0, number), len(self._parameters[name].curriculum) - 1)
            for name, number in numbers.items()
            if name in self._parameters
        }
        wanted = {**self._numbers, **fitting}
        if wanted != self._numbers:
            self._begin(wanted)

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that a restart needs, as plain values."""
        return {
            "revision": self.revision,
            "since_revision": self.since_revision,
            "numbers": dict(self._numbers),
            "smoothed": dict(self._smoothed),
            "returns": self._buffers.state_dict(),
            "digest": self._digest(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`. Where the run file has other parameters by now the revision grows.

        Raises:
            KeyError, TypeError, ValueError: it is not what was saved.
        """
        if not self._parameters or not state:
            return
        numbers = state["numbers"]
        self.set_numbers({str(name): count(numbers, name) for name in numbers})
        self.revision = max(1, count(state, "revision"))
        self.since_revision = count(state, "since_revision")
        if self._digest() != state["digest"]:
            self.revision += 1
            self.since_revision = self.revision
            return
        self._buffers.load_state_dict(state["returns"])
        for name in self._parameters:
            self._smoothed[name] = number({name: 0.0, **state["smoothed"]}, name)

    def _look(self) -> None:
        """Looks at all parameters, and begins what is to begin."""
        over = [name for name in self._parameters if self._is_over(name)]
        if not over:
            return
        for name in over:
            number, curriculum = self._numbers[name], self._parameters[name].curriculum
            criteria = curriculum[number].completion_criteria
            self._changes.append(
                LessonChange(
                    parameter=name,
                    number=number + 1,
                    lessons=len(curriculum),
                    lesson=curriculum[number + 1].name,
                    completed=curriculum[number].name,
                    require_reset=criteria is not None and criteria.require_reset,
                )
            )
        self._begin({name: number + (name in over) for name, number in self._numbers.items()})

    def _is_over(self, parameter: str) -> bool:
        number, curriculum = self._numbers[parameter], self._parameters[parameter].curriculum
        criteria = curriculum[number].completion_criteria
        if criteria is None or number + 1 >= len(curriculum) or not self._buffers.is_long_enough(criteria):
            return False
        if criteria.measure == "progress":
            return self._progress.get(criteria.behavior, 0.0) > criteria.threshold
        reward = self._buffers.reward(criteria, self._smoothed[parameter])
        if reward is None:
            return False
        if criteria.signal_smoothing:
            self._smoothed[parameter] = reward
        return reward > criteria.threshold

    def _begin(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)  # a new one: other threads read the old one
        self._buffers.clear()
        self.revision += 1
        self.since_revision = self.revision

    def _digest(self) -> str:
        """Names what the parameters are, apart from their revision."""
        assignment = policy_pb2.Assignment(
            environment_parameters={name: self._samplers[name][number] for name, number in self._numbers.items()},
            parameter_order=self._parameters,
        )
        return hashlib.sha256(assignment.SerializeToString(deterministic=True)).hexdigest()


def no_lessons() -> Lessons:
    """Returns those of a run without environment parameters."""
    return Lessons(None, seed=0)
