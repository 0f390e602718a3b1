"""Tests the three forms of an environment parameter."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.shared.settings.options import RunOptions

UNIFORM = {"sampler_type": "uniform", "sampler_parameters": {"min_value": 2.0, "max_value": 3.0}}


def lessons_until(**criteria: object) -> dict[str, object]:
    """Returns a curriculum of two lessons with criteria of the first."""
    first = {"name": "easy", "value": 1, "completion_criteria": {"behavior": "Ball", **criteria}}
    return {"curriculum": [first, {"name": "hard", "value": 2}]}


def resolve(value: object) -> object:
    """Returns one parameter, resolved, as plain data."""
    options = RunOptions.model_validate({"environment_parameters": {"mass": value}})
    return options.model_dump(mode="json")["environment_parameters"]["mass"]


def test_resolving_twice_changes_nothing() -> None:
    """The resolved form resolves to itself."""
    assert resolve(resolve(UNIFORM)) == resolve(UNIFORM)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (lessons_until(measure="statistic"), "statistic is missing"),
        (lessons_until(statistic="Goals"), "measure is reward"),
    ],
)
def test_what_is_no_parameter_is_refused(value: object, message: str) -> None:
    """An invalid parameter is refused with a message for its rule."""
    with pytest.raises(ValidationError, match=message):
        resolve(value)
