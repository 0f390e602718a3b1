"""Tests environment parameters as messages."""

from __future__ import annotations

import pytest

from learner.training.curriculum.lessons import seeded
from tests.learner.training.curriculum.curricula import curriculum, parameters

UNIFORM = {"sampler_type": "uniform", "sampler_parameters": {"min_value": 0.75, "max_value": 3}}


def test_every_kind_of_sampler_keeps_its_numbers() -> None:
    """Constants, uniform, multirange and Gaussian samplers keep their numbers."""
    samplers = seeded(
        parameters(
            mass=1.5,
            scale=UNIFORM,
            g={"sampler_type": "gaussian", "sampler_parameters": {"mean": 1, "st_dev": 2}},
            mr={"sampler_type": "multirangeuniform", "sampler_parameters": {"intervals": [[1, 2], [4, 5]]}},
        ),
        7,
    )
    assert list(samplers) == ["mass", "scale", "g", "mr"]
    assert samplers["mass"][0].constant == 1.5
    assert (samplers["scale"][0].uniform.low, samplers["scale"][0].uniform.high) == (0.75, 3.0)
    assert (samplers["g"][0].gaussian.mean, samplers["g"][0].gaussian.st_dev) == (1.0, 2.0)
    assert [(each.low, each.high) for each in samplers["mr"][0].multi_range.intervals] == [(1.0, 2.0), (4.0, 5.0)]


def test_seeds_are_counted_over_all_lessons_that_have_none() -> None:
    """A sampler without a seed gets the run's seed plus its index among those."""
    written = {"sampler_type": "uniform", "sampler_parameters": {"seed": 99}}
    samplers = seeded(parameters(a=1, b=curriculum(UNIFORM, written, UNIFORM), c=written, d=UNIFORM), 41)
    seeds = {name: [each.seed for each in lessons] for name, lessons in samplers.items()}
    assert seeds == {"a": [41], "b": [42, 99, 43], "c": [99], "d": [44]}


@pytest.mark.parametrize("run_seed", [2**31 - 1, 2**31 + 5])
def test_seeds_fit_what_players_hold(run_seed: int) -> None:
    """Sampler seeds are from 0 to 2^31 - 1."""
    (sampler,) = seeded(parameters(b=UNIFORM, a=UNIFORM), run_seed)["a"]
    assert 0 <= sampler.seed < 2**31
