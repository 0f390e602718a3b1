"""Environment parameters: constants, samplers and curricula.

ML-Agents' three notations become one: every parameter is a list of lessons, a constant is a sampler, and a parameter
without a curriculum is one lesson named after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Literal, Self

from pydantic import SerializeAsAny, ValidationInfo, field_validator, model_validator

from learner.shared.settings.base import (
    LenientSettings,
    NonNegativeWhole,
    Real,
    SettingsModel,
    Value,
    Whole,
    invalid,
    invalid_as_told,
)

MAX_FLOAT32 = 3.4028234663852886e38


class SamplerParameters(SettingsModel):
    """Parameters of every sampler."""

    seed: Whole = -1
    """-1 derives one from the run seed"""

    def numbers(self) -> Iterator[float]:
        """Yields every number that is sent to players as float32."""
        for key, value in self:
            if key != "seed":
                yield from _flat(value)


class ConstantParameters(SamplerParameters):
    """A constant value."""

    value: Real = 0.0
    """the value"""


class UniformParameters(SamplerParameters):
    """Uniform between two bounds."""

    min_value: Real = 0.0
    """least value; at most max_value"""
    max_value: Real = 1.0
    """largest value"""

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min_value > self.max_value:
            raise invalid_as_told(f"min_value {self.min_value} is more than max_value {self.max_value}: exchange them")
        return self


class GaussianParameters(SamplerParameters):
    """A normal distribution."""

    mean: Real = 1.0
    """mean"""
    st_dev: Real = 1.0
    """standard deviation"""


class MultiRangeUniformParameters(SamplerParameters):
    """Uniform over several intervals."""

    intervals: tuple[tuple[Real, Real], ...] = ((0.0, 1.0),)
    """pairs of a minimum and a maximum value"""

    @field_validator("intervals", mode="before")
    @classmethod
    def _pairs(cls, value: object) -> object:
        for interval in value if isinstance(value, list | tuple) else ():
            if not isinstance(interval, list | tuple) or len(interval) != 2:
                raise invalid_as_told(f"interval {interval!r} must be two numbers, as in [0.0, 1.0]")
        return value

    @field_validator("intervals")
    @classmethod
    def _ordered(cls, value: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        if not value:
            raise invalid_as_told("has no interval; write at least one, such as [[0.0, 1.0]]")
        for low, high in value:
            if low > high:
                raise invalid_as_told(f"interval [{low}, {high}] must have its minimum first")
        return value


SAMPLERS: Mapping[str, type[SamplerParameters]] = MappingProxyType(
    {
        "uniform": UniformParameters,
        "gaussian": GaussianParameters,
        "multirangeuniform": MultiRangeUniformParameters,
        "constant": ConstantParameters,
    }
)
"""Parameter model of each sampler type."""


class Sampler(LenientSettings):
    """Distribution of an environment parameter; as in ML-Agents, a number, true or false is accepted too."""

    sampler_type: Literal["uniform", "gaussian", "multirangeuniform", "constant"]
    """how the value is drawn at each reset"""
    sampler_parameters: SerializeAsAny[SamplerParameters]
    """parameters of the sampler, see below"""

    @classmethod
    def annotation_for(cls, key: str, raw: Mapping[str, Value]) -> object:
        """Returns the type of a field; the type of the parameters depends on the sampler type."""
        if key == "sampler_parameters":
            return SAMPLERS.get(str(raw.get("sampler_type")), object)
        return super().annotation_for(key, raw)

    @model_validator(mode="before")
    @classmethod
    def _from_number(cls, value: object) -> object:
        if isinstance(value, bool):
            value = float(value)
        if isinstance(value, int | float | str):
            return {"sampler_type": "constant", "sampler_parameters": {"value": value}}
        if not isinstance(value, Mapping | Sampler):
            raise invalid("must be a number, or a map with sampler_type and sampler_parameters")
        return value

    @field_validator("sampler_parameters", mode="before")
    @classmethod
    def _of_this_sampler(cls, value: object, info: ValidationInfo) -> object:
        model = SAMPLERS.get(str(info.data.get("sampler_type")))
        if model is None:  # reported at sampler_type
            return SamplerParameters()
        return model.model_validate(value)


class CompletionCriteria(SettingsModel):
    """The criteria that complete a lesson."""

    behavior: str
    """behavior name, without a team"""
    measure: Literal["reward", "group_reward", "progress", "evaluation", "statistic"] = "reward"
    """mean of the newest returns, group returns (of agents whose episodes ended with their group's), evaluations or reported values; progress: steps / max_steps"""
    statistic: str | None = None
    """name of the statistic in TensorBoard, for measure: statistic"""
    min_lesson_length: NonNegativeWhole = 0
    """episodes, evaluations or reported values before the lesson can end"""
    signal_smoothing: bool = True
    """keep a quarter of the last measured value in the next one"""
    threshold: Real = 0.0
    """the lesson ends once the measure is above this"""
    require_reset: bool = False
    """reset environments when the next lesson begins"""

    @model_validator(mode="after")
    def _progress_is_a_fraction(self) -> Self:
        if self.measure == "progress" and not 0.0 <= self.threshold <= 1.0:
            raise invalid_as_told(f"threshold is {self.threshold}, but progress is between 0 and 1")
        return self

    @model_validator(mode="after")
    def _statistic_has_a_name(self) -> Self:
        if self.measure == "statistic" and not self.statistic:
            raise invalid_as_told("measure is statistic, but statistic is missing; write its name in TensorBoard")
        if self.measure != "statistic" and self.statistic is not None:
            raise invalid_as_told(
                f"statistic is {self.statistic!r}, but measure is {self.measure}; write measure: statistic"
            )
        return self


class Lesson(SettingsModel):
    """One lesson of a curriculum."""

    name: str
    """name of the lesson, for logs and statistics"""
    value: Sampler
    """a number or a sampler"""
    completion_criteria: CompletionCriteria | None = None
    """when the next lesson begins; every lesson but the last needs it"""


class ParameterSettings(SettingsModel):
    """One environment parameter: its lessons, in order."""

    curriculum: tuple[Lesson, ...]
    """lessons, in order"""

    @classmethod
    def model_for(cls, raw: Mapping[str, Value]) -> type[SettingsModel]:
        """Returns the model that validates a map: a curriculum, or a single sampler."""
        return cls if "curriculum" in raw else Sampler

    @field_validator("curriculum")
    @classmethod
    def _has_a_lesson(cls, value: tuple[Lesson, ...]) -> tuple[Lesson, ...]:
        if not value:
            raise invalid_as_told("has no lesson; write at least one, with a name and a value")
        return value

    @model_validator(mode="after")
    def _lessons_end(self) -> Self:
        for lesson in self.curriculum[:-1]:
            if lesson.completion_criteria is None:
                raise invalid_as_told(
                    f"lesson {lesson.name!r} has no completion_criteria; every lesson but the last needs them"
                )
        return self


def _flat(value: object) -> Iterator[float]:
    if isinstance(value, tuple):
        for item in value:
            yield from _flat(item)
    elif isinstance(value, int | float):
        yield float(value)


def as_curriculum(name: str, value: object) -> object:
    """Converts a number or a sampler to a curriculum of one lesson, named after the parameter."""
    if isinstance(value, ParameterSettings) or (isinstance(value, Mapping) and "curriculum" in value):
        return value
    return {"curriculum": [{"name": name, "value": value}]}
