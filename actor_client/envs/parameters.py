"""Draws the run's environment parameters, and finds how an environment takes them, and how it is told of a pause."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from rollcast.v1 import policy_pb2

from actor_client.envs.errors import EnvironmentFailed
from actor_client.envs.tracebacks import place_of_code

Values = Mapping[str, float]
"""One value for each parameter."""

OPTION: Final = "parameters"
"""Key of the values in the options of `reset`."""
_SETTER: Final = "set_parameters"
_SEED_MASK: Final = 2**63 - 1


class EnvironmentParameters:
    """Draws the environment parameters of each episode.

    A constant is the same in all episodes. Any other sampler draws for each episode from a generator that depends on
    the sampler's seed and on the seed of the environment's last reset, so resets with equal seeds give equal values.

    Args:
        num_envs: Number of environments, E.

    Attributes:
        revision: Revision of the parameters; 0 before the first ones.
    """

    def __init__(self, num_envs: int) -> None:
        self.revision = 0
        self._seeds = [0] * num_envs
        self._constants: dict[str, float] = {}
        self._samplers: dict[str, policy_pb2.Sampler] = {}
        self._generators: list[np.random.Generator] = []

    def assign(self, assignment: policy_pb2.Assignment) -> None:
        """Replaces the parameters; a sampler of an unknown kind, perhaps of a newer learner, is left out."""
        self.revision = assignment.settings_revision
        self._constants, self._samplers = {}, {}
        for name, sampler in sorted(assignment.environment_parameters.items()):
            kind = sampler.WhichOneof("sampler")
            if kind == "constant":
                self._constants[name] = sampler.constant
            elif kind is not None:
                self._samplers[name] = sampler
        self._seed()

    def seed(self, seeds: Sequence[int]) -> None:
        """Begins the draws again.

        Args:
            seeds: Seeds of the environments, E entries.
        """
        self._seeds = list(seeds)
        self._seed()

    @property
    def varies(self) -> bool:
        """True if a parameter is drawn anew for each episode."""
        return bool(self._samplers)

    def draw(self, env: int) -> Values:
        """Returns the values for the next episode of an environment; empty without parameters."""
        if not self._samplers:
            return self._constants
        generator = self._generators[env]
        return self._constants | {name: _drawn(sampler, generator) for name, sampler in self._samplers.items()}

    def _seed(self) -> None:
        of_samplers = [sampler.seed & _SEED_MASK for sampler in self._samplers.values()]
        self._generators = [np.random.default_rng([seed, *of_samplers]) for seed in self._seeds]


def _drawn(sampler: policy_pb2.Sampler, generator: np.random.Generator) -> float:
    """Returns a value of a sampler that is not constant."""
    match sampler.WhichOneof("sampler"):
        case "uniform":
            return float(generator.uniform(sampler.uniform.low, sampler.uniform.high))
        case "gaussian":
            return float(generator.normal(sampler.gaussian.mean, abs(sampler.gaussian.st_dev)))
        case _:
            intervals = sampler.multi_range.intervals
            ends = np.cumsum([each.high - each.low for each in intervals])
            place = generator.uniform(0.0, ends[-1])
            chosen = min(int(np.searchsorted(ends, place, side="right")), len(intervals) - 1)
            return float(intervals[chosen].high - (ends[chosen] - place))


def setter_of(environment: Any) -> Callable[[Any], object] | None:
    """Returns the method `set_parameters` of an environment or of one inside its wrappers; None if there is none."""
    return _method_of(environment, _SETTER)


def tell_pause(environment: Any, index: int | None, *, is_paused: bool) -> None:
    """Calls `on_paused` or `on_resumed` of an environment or of one inside its wrappers, if there is such a method.

    Args:
        environment: The environment, or a vector environment.
        index: Its number; None for a vector environment.
        is_paused: Whether the run is paused.

    Raises:
        EnvironmentFailed: The method failed.
    """
    method = _method_of(environment, "on_paused" if is_paused else "on_resumed")
    if method is None:
        return
    try:
        method()
    except Exception as error:
        raise EnvironmentFailed(index, error, place_of_code(method)) from error


def _method_of(environment: Any, name: str) -> Callable[..., object] | None:
    method = getattr(environment, name, None)
    if method is None and getattr(environment, "has_wrapper_attr", lambda _: False)(name):
        method = environment.get_wrapper_attr(name)
    if method is None:
        method = getattr(getattr(environment, "unwrapped", None), name, None)
    return method if callable(method) else None


def takes_options(environment: Any) -> bool:
    """Returns whether the innermost environment's `reset` has a parameter `options`."""
    reset = getattr(environment, "unwrapped", environment).reset
    try:
        parameters = inspect.signature(reset).parameters.values()
    except (TypeError, ValueError):  # a method of an extension has no signature
        return True
    return any(each.name == "options" or each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
