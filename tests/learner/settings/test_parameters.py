"""Tests the three forms of an environment parameter."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from learner.settings.options import RunOptions

CONSTANT = {"sampler_type": "constant", "sampler_parameters": {"seed": -1, "value": 3.0}}
UNIFORM = {"sampler_type": "uniform", "sampler_parameters": {"min_value": 2.0, "max_value": 3.0}}


def lessons_until(**criteria: object) -> dict[str, object]:
    """Returns a curriculum of two lessons with criteria of the first."""
    first = {"name": "easy", "value": 1, "completion_criteria": {"behavior": "Ball", **criteria}}
    return {"curriculum": [first, {"name": "hard", "value": 2}]}


def resolve(value: object) -> object:
    """Returns one parameter, resolved, as plain data."""
    options = RunOptions.model_validate({"environment_parameters": {"mass": value}})
    return options.model_dump(mode="json")["environment_parameters"]["mass"]


@pytest.mark.parametrize("value", [3, 3.0, "3e0", CONSTANT])
def test_a_number_is_one_lesson_of_a_constant(value: object) -> None:
    """A number is a curriculum of one lesson."""
    assert resolve(value) == {"curriculum": [{"name": "mass", "value": CONSTANT, "completion_criteria": None}]}


def test_a_sampler_gets_its_defaults() -> None:
    """A sampler gets its defaults."""
    lesson = {
        "sampler_type": "gaussian",
        "sampler_parameters": {"seed": -1, "mean": 2.0, "st_dev": 1.0},
    }
    written = {"sampler_type": "gaussian", "sampler_parameters": {"mean": 2}}
    assert resolve(written) == {"curriculum": [{"name": "mass", "value": lesson, "completion_criteria": None}]}


def test_a_curriculum_fills_its_criteria() -> None:
    """Lessons keep their order and get the defaults of completion_criteria."""
    written = {
        "curriculum": [
            {"name": "easy", "value": 1, "completion_criteria": {"behavior": "Ball", "threshold": "0.5"}},
            {"name": "hard", "value": UNIFORM},
        ]
    }
    resolved = resolve(written)
    assert isinstance(resolved, dict)
    first, last = resolved["curriculum"]
    assert first["completion_criteria"] == {
        "behavior": "Ball",
        "measure": "reward",
        "statistic": None,
        "min_lesson_length": 0,
        "signal_smoothing": True,
        "threshold": 0.5,
        "require_reset": False,
    }
    assert last["value"]["sampler_parameters"] == {"seed": -1, "min_value": 2.0, "max_value": 3.0}


def test_resolving_twice_changes_nothing() -> None:
    """The resolved form resolves to itself."""
    assert resolve(resolve(UNIFORM)) == resolve(UNIFORM)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (None, "must be a number, or a map with sampler_type"),
        ([1], "must be a number, or a map with sampler_type"),
        ("heavy", "finite number"),
        ({"sampler_type": "poisson", "sampler_parameters": {}}, "'uniform', 'gaussian'"),
        ({"sampler_type": "uniform"}, "Field required"),
        (lessons_until(measure="statistic"), "statistic is missing"),
        (lessons_until(statistic="Goals"), "measure is reward"),
        (lessons_until(measure="elo"), "'group_reward'"),
        ({"sampler_type": "uniform", "sampler_parameters": {"min_value": 2}}, "min_value 2.0 is more than"),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[2, 1]]}},
            "must have its minimum first",
        ),
        ({"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": []}}, "has no interval"),
        ({"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [1, 2]}}, "must be two numbers"),
        (
            {"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[1, 2, 3]]}},
            "must be two numbers",
        ),
        ({"curriculum": []}, "has no lesson"),
        (
            {"curriculum": [{"name": "a", "value": 1}, {"name": "b", "value": 2}]},
            "'a' has no completion_criteria; every lesson but the last",
        ),
        (
            {
                "curriculum": [
                    {
                        "name": "a",
                        "value": 1,
                        "completion_criteria": {"behavior": "B", "measure": "progress", "threshold": 2},
                    }
                ]
            },
            "progress is between 0 and 1",
        ),
    ],
)
def test_what_is_no_parameter_is_refused(value: object, message: str) -> None:
    """An invalid parameter is refused with a message for its rule."""
    with pytest.raises(ValidationError, match=message):
        resolve(value)
