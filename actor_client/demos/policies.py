"""Policies that act here without a learner: a function of the user's, or the model that a run exported."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from rollcast.specs import BehaviorSpec

from actor_client.demos.interface import Chosen, LocalPolicy
from actor_client.demos.unity_model import ModelPolicy
from actor_client.envs.base import FloatArray, MaskArray, Observations
from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode

T = TypeVar("T")


class ScriptedPolicy:
    """A function of the user's, called for one environment after another.

    It is called with what an environment shows: the array of its only observation, or a dictionary of arrays by their
    names; where the environment has action masks, with the mask (uint8 [sum of branches]) as well. It returns a choice,
    a sequence of choices of each branch, or an array of the axes in the environment's own values.

    Args:
        make: makes the function of one environment: the class itself, or what returns the one function.
        spec: what is seen and done.
        agents: how many environments there are.
        name: what the user called it.

    Raises:
        ActorError: the class cannot be made.
    """

    def __init__(self, make: Callable[[], Callable[..., Any]], spec: BehaviorSpec, agents: int, name: str) -> None:
        self._name = name
        self._spec = spec
        self._functions = [self._called(make) for _ in range(agents)]

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Calls the function of each environment; see `LocalPolicy.act`."""
        rows = [self._one(agent, observations, masks) for agent in range(len(self._functions))]
        if self._spec.action.continuous_size:
            return Chosen(np.stack(rows), None)
        return Chosen(None, np.stack(rows).astype(np.int32))

    def ended(self, agents: Sequence[int]) -> None:
        """Calls the method `reset` of the functions of these environments, if they have one."""
        for agent in agents:
            reset = getattr(self._functions[agent], "reset", None)
            if reset is not None:
                self._called(reset)

    def _one(self, agent: int, observations: Observations, masks: MaskArray | None) -> FloatArray:
        named = {spec.name: values[agent] for spec, values in zip(self._spec.observations, observations, strict=True)}
        seen: Any = named if len(named) > 1 else observations[0][agent]
        arguments = (seen,) if masks is None else (seen, masks[agent])
        values = self._called(lambda: np.asarray(self._functions[agent](*arguments), np.float32).ravel())
        self._check(values)
        return values

    def _called(self, call: Callable[[], T]) -> T:
        """Calls the user's code, which may raise anything: `sys.exit` is meant for programs, and would end this one."""
        try:
            return call()
        except BaseException as error:  # signals have handlers, and raise nothing
            raise self._failed(one_line(error)) from error

    def _check(self, values: FloatArray) -> None:
        action = self._spec.action
        if len(values) != action.factors or not np.isfinite(values).all():
            raise self._failed(f"it returned {values.tolist()[:16]}; {action.factors} finite numbers are needed")
        sizes = np.array(action.discrete_branches, np.float32)
        if len(sizes) and ((values != np.rint(values)) | (values < 0) | (values >= sizes)).any():
            raise self._failed(
                f"it returned the choices {values.tolist()[:16]}; whole numbers below {sizes.astype(int).tolist()[:16]} "
                "are needed"
            )

    def _failed(self, reason: str) -> ActorError:
        return ActorError(ExitCode.POLICY_FAILED, f"--policy {self._name}: {reason}")


def load_policy(name: str, spec: BehaviorSpec, agents: int) -> LocalPolicy:
    """Loads what `--policy` names.

    Args:
        name: `module:callable` (a class is made once for each environment), or the path of an ONNX file that a run
            exported (`results/<run>/<behavior>.onnx`).
        spec: what is seen and done.
        agents: how many environments there are.

    Raises:
        ActorError: there is no such thing, or it does not fit.
    """
    if name.endswith(".onnx"):
        return ModelPolicy(Path(name), spec, agents)
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise ActorError(
            ExitCode.USAGE,
            f"--policy {name}: write module:callable, or the path of an exported model, which ends in .onnx",
        )
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
    except BaseException as error:  # see `ScriptedPolicy`
        raise ActorError(
            ExitCode.USAGE, f"--policy {name}: module {module} cannot be imported: {one_line(error)}"
        ) from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ActorError(ExitCode.USAGE, f"--policy {name}: module {module} has no callable {attribute}")
    function: Callable[..., Any] = found
    make = function if isinstance(found, type) else (lambda: function)
    return ScriptedPolicy(make, spec, agents, name)
