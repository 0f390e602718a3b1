"""Tracks the current lesson of each environment parameter and begins the next ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from rollcast.enums import ResetMode
from rollcast.v1 import policy_pb2

from learner.shared.leave_one_out import Source
from learner.shared.observe.view import LessonView
from learner.shared.saved_values import count, number
from learner.shared.settings.parameters import (
    ConstantParameters,
    GaussianParameters,
    MultiRangeUniformParameters,
    ParameterSettings,
    Sampler,
    UniformParameters,
)
from learner.training.curriculum.measures import EVALUATION, REWARD, MeasureBuffers, statistic

NOTHING_ELSE: Mapping[str, float] = MappingProxyType({})
_UNIFORM = policy_pb2.UniformSampler


@dataclass(frozen=True, slots=True)
class LessonChange:
    """A parameter that has reached its next lesson, or was set to another one.

    Attributes:
        parameter: Name of the parameter.
        number: Number of the lesson that begins, from 0.
        lessons: Number of lessons.
        lesson: Name of the lesson that begins.
        completed: Name of the lesson before.
        require_reset: Whether environments must be reset for it.
    """

    parameter: str
    number: int
    lessons: int
    lesson: str
    completed: str
    require_reset: bool


class Lessons:
    """All environment parameters of a run.

    A lesson is over when its measure exceeds its threshold over the required number of episodes. Only episodes that
    began with the current parameters count; a new lesson of any parameter begins without episodes. Lessons advance one
    at a time. They are checked after each episode, evaluation, reported value and report of steps.

    Episodes and progress come from the trainers' thread; everything else may be read from any thread.

    Args:
        parameters: Resolved parameters of the run file; None without any.
        seed: Seed of the run.
        present: Returns the present actors that have sent steps of a behavior, by its name. What they report completes a
            lesson only if it also does so without any one of them.

    Attributes:
        revision: Grows with each change of the parameters; 0 without parameters.
        since_revision: Revision of the newest lesson: episodes with an older one belong to earlier lessons. 0 before
            the first change.
    """

    def __init__(
        self,
        parameters: Mapping[str, ParameterSettings] | None,
        *,
        seed: int,
        present: Callable[[str], Collection[Source]] = lambda _: (),
    ) -> None:
        self._present = present
        self._parameters = dict(parameters or {})
        self._samplers = seeded(self._parameters, seed)
        self._numbers: Mapping[str, int] = dict.fromkeys(self._parameters, 0)
        self._smoothed = dict.fromkeys(self._parameters, 0.0)
        self._buffers = MeasureBuffers(self._parameters)
        self._progress: dict[str, float] = {}
        self._changes: list[LessonChange] = []
        self.revision = 1 if self._parameters else 0
        self.since_revision = 0

    def numbers(self) -> Mapping[str, int]:
        """Returns the number of each parameter's current lesson, from 0, in the run file's order."""
        return self._numbers

    def are_last(self) -> bool:
        """Returns whether each parameter is in its last lesson."""
        return all(number + 1 == len(self._parameters[name].curriculum) for name, number in self._numbers.items())

    def view(self) -> tuple[LessonView, ...]:
        """Returns the lessons as shown to operators."""
        return tuple(
            LessonView(
                name, number, len(self._parameters[name].curriculum), self._parameters[name].curriculum[number].name
            )
            for name, number in self._numbers.items()
        )

    def assignment(self, *, reset: bool = False) -> policy_pb2.Assignment | None:
        """Returns the assignment for actors; None without parameters.

        Args:
            reset: Whether environments reset at once.
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

    def measures(self, behavior: str) -> frozenset[str]:
        """Returns the measures of a behavior that lessons use; see `learner.training.curriculum.measures`."""
        return self._buffers.measures(behavior)

    def add_episode(
        self,
        behavior: str,
        value: float,
        revision: int | None,
        others: Mapping[str, float] = NOTHING_ELSE,
        *,
        source: Source = Source(),  # noqa: B008 - a frozen value
    ) -> None:
        """Records a finished training episode.

        Args:
            behavior: Name of the behavior, without a team.
            value: Return of the episode.
            revision: Revision of the parameters with which it began; None if the actor reported none, because it sets
                no parameters.
            others: Further measures of the episode (`measures`).
            source: The actor that played it.
        """
        if revision == self.revision and self._buffers.add(behavior, {**others, REWARD: value}, source):
            self._look()

    def add_statistic(
        self,
        behavior: str,
        name: str,
        value: float,
        source: Source = Source(),  # noqa: B008 - a frozen value
    ) -> None:
        """Records a value that an environment of an actor reported outside its episodes."""
        if self._buffers.add(behavior, {statistic(name): value}, source):
            self._look()

    def add_evaluation(self, behavior: str, mean: float) -> None:
        """Records the mean return of an evaluation that began under the current parameters, the least of its means."""
        if self._buffers.add(behavior, {EVALUATION: mean}):
            self._look()

    def note_progress(self, behavior: str, progress: float) -> None:
        """Records that steps of a behavior have arrived.

        Args:
            behavior: Name of the behavior.
            progress: Its steps divided by its `max_steps`.
        """
        self._progress[behavior] = progress
        self._look()

    def take_changes(self) -> list[LessonChange]:
        """Returns the changes since the last call."""
        changes, self._changes = self._changes, []
        return changes

    def set_numbers(self, numbers: Mapping[str, int]) -> None:
        """Sets the lessons; ignores unknown parameters, and limits numbers to the last lesson."""
        fitting = {
            name: min(max(0, number), len(self._parameters[name].curriculum) - 1)
            for name, number in numbers.items()
            if name in self._parameters
        }
        wanted = {**self._numbers, **fitting}
        if wanted != self._numbers:
            self._begin(wanted)

    def names(self, parameter: str) -> tuple[str, ...]:
        """Returns the names of the lessons of a parameter, in order."""
        return tuple(each.name for each in self._parameters[parameter].curriculum)

    def go_to(self, numbers: Mapping[str, int]) -> None:
        """Begins other lessons of some parameters; `take_changes` returns them."""
        self._changes += [self._change(name, number) for name, number in numbers.items()]
        self._begin({**self._numbers, **numbers})

    def state_dict(self) -> dict[str, Any]:
        """Returns the state that a restart needs, as plain values."""
        return {
            "revision": self.revision,
            "since_revision": self.since_revision,
            "numbers": dict(self._numbers),
            "smoothed": dict(self._smoothed),
            "returns": self._buffers.state_dict(),
            "sourced": self._buffers.sourced_state_dict(),
            "digest": self._digest(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from `state_dict`. The revision grows if the run file now has other parameters.

        Raises:
            KeyError, TypeError, ValueError: The state is not one that was saved here.
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
        self._buffers.load_state_dict(state["returns"], state["sourced"])
        for name in self._parameters:
            self._smoothed[name] = number({name: 0.0, **state["smoothed"]}, name)

    def _look(self) -> None:
        """Checks all parameters and begins due lessons."""
        over = [name for name in self._parameters if self._is_over(name)]
        if not over:
            return
        self._changes += [self._change(name, self._numbers[name] + 1) for name in over]
        self._begin({name: number + (name in over) for name, number in self._numbers.items()})

    def _change(self, parameter: str, number: int) -> LessonChange:
        curriculum = self._parameters[parameter].curriculum
        present = curriculum[self._numbers[parameter]]
        criteria = present.completion_criteria
        return LessonChange(
            parameter=parameter,
            number=number,
            lessons=len(curriculum),
            lesson=curriculum[number].name,
            completed=present.name,
            require_reset=criteria is not None and criteria.require_reset,
        )

    def _is_over(self, parameter: str) -> bool:
        number, curriculum = self._numbers[parameter], self._parameters[parameter].curriculum
        criteria = curriculum[number].completion_criteria
        if criteria is None or number + 1 >= len(curriculum) or not self._buffers.is_long_enough(criteria):
            return False
        if criteria.measure == "progress":
            return self._progress.get(criteria.behavior, 0.0) > criteria.threshold
        mean = self._buffers.mean(criteria, self._smoothed[parameter])
        if mean is None:
            return False
        if criteria.signal_smoothing:
            self._smoothed[parameter] = mean
        if mean <= criteria.threshold:
            return False
        return self._buffers.least_mean(criteria, self._present(criteria.behavior)) > criteria.threshold

    def _begin(self, numbers: Mapping[str, int]) -> None:
        self._numbers = dict(numbers)  # a new dict: other threads read the old one
        self._buffers.clear()
        self.revision += 1
        self.since_revision = self.revision

    def _digest(self) -> str:
        """Returns a digest of the parameters without their revision."""
        assignment = policy_pb2.Assignment(
            environment_parameters={name: self._samplers[name][number] for name, number in self._numbers.items()},
            parameter_order=self._parameters,
        )
        return hashlib.sha256(assignment.SerializeToString(deterministic=True)).hexdigest()


def no_lessons() -> Lessons:
    """Returns the lessons of a run without environment parameters."""
    return Lessons(None, seed=0)


def seeded(parameters: Mapping[str, ParameterSettings], run_seed: int) -> dict[str, tuple[policy_pb2.Sampler, ...]]:
    """Returns the samplers of each lesson of each parameter.

    A sampler with seed -1 gets the run's seed plus its index among all such samplers, ordered by parameter in the run
    file and then by lesson. A lesson therefore keeps its seed, whatever the current lessons of other parameters.
    """
    offset = 0
    samplers: dict[str, tuple[policy_pb2.Sampler, ...]] = {}
    for name, settings in parameters.items():
        messages = []
        for lesson in settings.curriculum:
            seed = lesson.value.sampler_parameters.seed
            if seed == -1:
                seed = run_seed + offset
                offset += 1
            messages.append(_message(lesson.value, seed))
        samplers[name] = tuple(messages)
    return samplers


def _message(sampler: Sampler, seed: int) -> policy_pb2.Sampler:
    seed &= 2**31 - 1  # range of seeds that players accept
    match sampler.sampler_parameters:
        case ConstantParameters(value=value):
            return policy_pb2.Sampler(constant=value, seed=seed)
        case UniformParameters(min_value=low, max_value=high):
            return policy_pb2.Sampler(uniform=_UNIFORM(low=low, high=high), seed=seed)
        case GaussianParameters(mean=mean, st_dev=st_dev):
            return policy_pb2.Sampler(gaussian=policy_pb2.GaussianSampler(mean=mean, st_dev=st_dev), seed=seed)
        case MultiRangeUniformParameters(intervals=intervals):
            ranges = policy_pb2.MultiRangeSampler(intervals=[_UNIFORM(low=low, high=high) for low, high in intervals])
            return policy_pb2.Sampler(multi_range=ranges, seed=seed)
    raise TypeError(f"no message for a sampler of type {sampler.sampler_type}")
