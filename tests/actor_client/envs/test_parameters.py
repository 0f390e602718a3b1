"""Environment parameters reach environments at the begin of each episode."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from rollcast.v1 import policy_pb2

from actor_client.envs.factory import StackedBatch
from actor_client.envs.parameters import EnvironmentParameters
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.envs.wrappers import Wrapping
from tests.actor_client.envs import toys

ACTIONS = np.zeros((2, 1), np.int32)


def assigned(revision: int = 1, gravity: float = 9.75) -> policy_pb2.Assignment:
    """Returns an assignment with one sampler of each kind."""
    uniform = policy_pb2.UniformSampler
    return policy_pb2.Assignment(
        settings_revision=revision,
        environment_parameters={
            "gravity": policy_pb2.Sampler(constant=gravity),
            "wind": policy_pb2.Sampler(uniform=uniform(low=-1, high=2), seed=3),
            "mass": policy_pb2.Sampler(gaussian=policy_pb2.GaussianSampler(mean=5, st_dev=0.5), seed=4),
            "size": policy_pb2.Sampler(
                multi_range=policy_pb2.MultiRangeSampler(intervals=[uniform(low=0, high=1), uniform(low=10, high=13)]),
                seed=5,
            ),
        },
    )


class Optional(toys.Toy):
    """Remembers the options of each reset."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.options: list[dict[str, Any] | None] = []

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        self.options.append(options)
        return super().reset(seed=seed)


class Settable(toys.Toy):
    """Remembers its parameters at each reset."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.now: Any = None
        self.used: list[Any] = []

    def set_parameters(self, parameters: Any) -> None:
        """Sets the parameters of the next episodes."""
        self.now = parameters

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begins an episode."""
        assert options is None
        self.used.append(self.now)
        return super().reset(seed=seed)


def test_options_of_each_reset_hold_a_new_draw() -> None:
    """A constant stays; each sampler draws for each episode, also at resets that the batch makes by itself."""
    environments = [Optional(length=2), Optional(length=3)]
    batch = ScalarBatch(environments, "Toy")
    batch.assign(assigned())
    batch.reset([1, 2])
    for _ in range(4):
        batch.step(None, ACTIONS)
    first, second = ([(given or {})["parameters"] for given in each.options] for each in environments)
    assert (len(first), len(second)) == (3, 2)
    assert {values["gravity"] for values in first + second} == {9.75}
    for name in ("wind", "mass", "size"):
        assert len({values[name] for values in first + second}) == 5


def test_without_parameters_reset_gets_a_seed_only() -> None:
    """An environment whose reset takes nothing else keeps working."""
    environment = Optional(length=2)
    batch = ScalarBatch([environment], "Toy")
    batch.reset([1])
    batch.step(None, ACTIONS[:1])
    batch.step(None, ACTIONS[:1])
    assert environment.options == [None, None]


def test_set_parameters_is_found_below_wrappers() -> None:
    """Gymnasium's wrappers and those of flags do not hide the method."""
    environment = Settable(length=2)
    wrapped = gymnasium.wrappers.TimeLimit(environment, 10)
    outer = Wrapping(frame_skip=2).apply("toy", wrapped, vector=False, is_first=True)
    batch = StackedBatch(ScalarBatch([outer], "Toy"), 2)
    assert batch.takes_parameters
    batch.assign(assigned(gravity=3.0))
    batch.reset([1])
    batch.assign(assigned(2, gravity=4.0))
    batch.step(None, ACTIONS[:1])
    assert [values["gravity"] for values in environment.used] == [3.0, 4.0]


def test_draws_follow_the_seeds_of_the_reset() -> None:
    """Equal seeds give equal values, as a resumed run in lock-step needs; other seeds and environments give others."""
    parameters = EnvironmentParameters(2)
    parameters.assign(assigned())
    drawn = []
    for seeds in ([7, 8], [7, 8], [9, 8]):
        parameters.seed(seeds)
        drawn.append([[dict(parameters.draw(env)) for _ in range(3)] for env in range(2)])
    assert drawn[0] == drawn[1]
    assert drawn[0][0] != drawn[2][0]
    assert drawn[0][1] == drawn[2][1]
    assert drawn[0][0] != drawn[0][1]


def test_draws_have_the_distributions_of_the_samplers() -> None:
    """Means and ranges of 4,000 draws; the intervals of a union are drawn in proportion to their lengths."""
    parameters = EnvironmentParameters(1)
    parameters.assign(assigned())
    values = [parameters.draw(0) for _ in range(4000)]
    wind, mass, size = (np.array([each[name] for each in values]) for name in ("wind", "mass", "size"))
    assert (wind.min() >= -1, wind.max() <= 2) == (True, True)
    assert abs(wind.mean() - 0.5) < 0.05
    assert abs(mass.mean() - 5) < 0.05
    assert abs(mass.std() - 0.5) < 0.05
    assert np.all((size <= 1) | (size >= 10))
    assert abs((size > 5).mean() - 0.75) < 0.04


@pytest.mark.parametrize("mode", ["NextStep", "SameStep"])
def test_a_vector_environment_is_given_arrays(mode: str) -> None:
    """`set_parameters` gets one number for each copy: at the reset, and after each step that ended episodes."""
    vector: Any = toys.several(2, mode=mode, length=2)
    told: list[dict[str, Any]] = []
    vector.set_parameters = told.append
    batch = VectorBatch(vector, "Toy")
    assert batch.takes_parameters
    batch.assign(assigned())
    batch.reset([5, 6])
    before = len(told)
    batch.step(None, ACTIONS)
    assert len(told) == before
    batch.step(None, ACTIONS)
    assert len(told) == before + 1
    assert {(values.shape, values.dtype.name) for values in told[-1].values()} == {((2,), "float32")}
    assert told[-1]["gravity"].tolist() == [9.75, 9.75]
    assert np.all(told[-1]["wind"] != told[-2]["wind"])


def test_a_vector_environment_without_a_way_in_is_known() -> None:
    """Episodes that it begins by itself cannot get parameters through `reset`."""
    assert not VectorBatch(toys.several(2, mode="NextStep"), "Toy").takes_parameters
    batch = VectorBatch(toys.several(2, mode="NextStep"), "Toy")
    batch.assign(assigned())
    batch.reset([5, 6])
