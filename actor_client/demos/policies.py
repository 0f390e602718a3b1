"""Policies that act without a learner: a user's function, or an exported model of a run."""

import importlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from rollcast.demonstrations.writing import ActionUnits
from rollcast.descriptions import ACTION_MASKS, OBSERVATIONS_PROPERTY, RECURRENT_IN, RECURRENT_OUT
from rollcast.enums import ObservationKind
from rollcast.extras import install
from rollcast.files import read_regular
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec, ObservationSpec

from actor_client.envs.base import FloatArray, IntArray, MaskArray, Observations
from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.actions import unusable

_CONTINUOUS: Final = "deterministic_continuous_actions"
_DISCRETE: Final = "deterministic_discrete_actions"
_OBSERVATION: Final = "obs_"
T = TypeVar("T")


class Chosen(NamedTuple):
    """Actions of E agents.

    Attributes:
        continuous: Environment actions, float32 [E, n]; None without axes.
        discrete: Choices counted from 0, int32 [E, b]; None without branches.
    """

    continuous: FloatArray | None
    discrete: IntArray | None


class LocalPolicy(Protocol):
    """A policy as the loop without a learner sees it."""

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Returns the actions of E agents.

        Args:
            observations: One array per observation of the spec, [E, *shape] each.
            masks: uint8 [E, sum of branches], 1 = allowed; None = all.

        Raises:
            ActorError: The policy failed.
        """

    def ended(self, agents: Sequence[int]) -> None:
        """Notes that these agents begin a new episode."""


class ModelPolicy:
    """Acts with the modes of the distributions; see `actor_client.demos.policies.LocalPolicy`.

    Args:
        path: The ONNX file.
        spec: Observations and actions.
        agents: Number of environments.

    Raises:
        ActorError: The file cannot be used, or the environment has axes without bounds, onto which the model's [-1, 1]
            cannot be mapped.
    """

    def __init__(self, path: Path, spec: BehaviorSpec, agents: int) -> None:
        self._path = path
        self._spec = spec
        self._units = ActionUnits(spec.action)
        if not self._units.bounded.all():
            raise self._failed(
                "the environment has action axes without bounds, onto which the model's actions in [-1, 1] cannot be "
                "mapped"
            )
        self._session = self._opened()
        inputs = {port.name: port.shape for port in self._session.get_inputs()}
        self._places = self._read_places([name for name in inputs if name.startswith(_OBSERVATION)])
        self._takes_masks = ACTION_MASKS in inputs
        memory = inputs.get(RECURRENT_IN)
        self._memory = None if memory is None else np.zeros((agents, 1, int(memory[-1])), np.float32)
        self._outputs = [_CONTINUOUS] if spec.action.continuous_size else []
        self._outputs += [_DISCRETE] if spec.action.discrete_branches else []
        self._outputs += [RECURRENT_OUT] if memory is not None else []
        missing = set(self._outputs) - {port.name for port in self._session.get_outputs()}
        if missing:
            raise self._failed(
                f"the model has no output {', '.join(sorted(missing))}: it is for another environment, or was not "
                "exported by a run"
            )

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Runs the model once; see `LocalPolicy.act`."""
        agents = len(observations[0])
        feed: dict[str, NDArray[Any]] = {
            f"{_OBSERVATION}{number}": _as_unity_sees(observations[place], self._spec.observations[place])
            for number, place in enumerate(self._places)
        }
        if self._takes_masks:
            size = self._spec.action.mask_size
            feed[ACTION_MASKS] = np.ones((agents, size), np.float32) if masks is None else masks.astype(np.float32)
        if self._memory is not None:
            feed[RECURRENT_IN] = self._memory
        try:
            found = dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True))
        except Exception as error:
            raise self._failed(f"the model cannot act in this environment: {one_line(error)}") from error
        self._mend(found, observations, masks)
        if self._memory is not None:
            self._memory = found[RECURRENT_OUT]
        continuous = found.get(_CONTINUOUS)
        discrete = found.get(_DISCRETE)
        return Chosen(
            None if continuous is None else self._units.actions(continuous.astype(np.float32)),
            None if discrete is None else discrete.astype(np.int32),
        )

    def _mend(self, found: dict[str, NDArray[Any]], observations: Observations, masks: MaskArray | None) -> None:
        """Replaces NaN outputs by zeros for agents that see NaN; raises for others, where the model is at fault."""
        for name, values in found.items():
            rows = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
            if not rows.any():
                continue
            if (rows & ~unusable(observations, masks, self._spec.action.discrete_branches)).any():
                raise self._failed(
                    f"output {name} is not finite although the observations are; export another checkpoint"
                )
            values[rows] = 0

    def ended(self, agents: Sequence[int]) -> None:
        """Clears the memory of these agents."""
        if self._memory is not None:
            self._memory[list(agents)] = 0

    def _read_places(self, inputs: Sequence[str]) -> Sequence[int]:
        """Returns the place in the spec of each observation that the model takes.

        A model of a run with ``critic_only`` has the names of its observations, so that the environment may have others.
        """
        names = [observation.name for observation in self._spec.observations]
        if len(inputs) == len(names):
            return range(len(names))
        told = self._session.get_modelmeta().custom_metadata_map.get(OBSERVATIONS_PROPERTY)
        try:
            return [names.index(name) for name in json.loads(told)]
        except (TypeError, ValueError):
            taken = f"takes {told}" if told else f"takes {len(inputs)} observations"
            raise self._failed(
                f"the model {taken}, but the environment has {', '.join(names)}: it is for another environment"
            ) from None

    def _opened(self) -> Any:
        # Imported here, because a scripted policy needs no inference library.
        try:
            from actor_client.policy.graph import open_session  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ActorError(
                ExitCode.MISSING_EXTRA,
                f"--policy FILE.onnx needs the module {error.name!r}; {install('actor,gym')}",
            ) from None
        try:
            return open_session(read_regular(self._path, MAX_POLICY_BYTES))
        except OSError as error:
            raise self._failed(f"the file cannot be opened: {error.strerror or error}", ExitCode.USAGE) from None
        except ActorError:
            raise
        except Exception as error:
            raise self._failed(f"the file is not a model that can be run: {one_line(error)}") from error

    def _failed(self, reason: str, code: ExitCode = ExitCode.POLICY_FAILED) -> ActorError:
        return ActorError(code, f"--policy {self._path}: {reason}")


def _as_unity_sees(values: NDArray[Any], spec: ObservationSpec) -> NDArray[np.float32]:
    """Returns an observation as the model takes it: floats, with byte pictures scaled to [0, 1]."""
    floats = values.astype(np.float32)
    if spec.kind is ObservationKind.IMAGE and spec.dtype.kind in "iu" and spec.scale:
        floats /= np.float32(spec.scale)
    return floats


class ScriptedPolicy:
    """A user's function, called for one environment after another.

    The function takes an environment's observation: the array of its only observation, or a dictionary of arrays by
    name. If the environment has action masks, the mask (uint8 [sum of branches]) is the second argument. The function
    returns a choice, a sequence of one choice per branch, or an array of the axes in the environment's own values.

    Args:
        make: Makes the function of one environment: the class itself, or a callable that returns the single function.
        spec: Observations and actions.
        agents: Number of environments.
        name: The user's name for the function.

    Raises:
        ActorError: The class cannot be instantiated.
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
        """Calls the user's code; turns any exception into an error, even `SystemExit`, which would end this process."""
        try:
            return call()
        except BaseException as error:  # signals have handlers and raise nothing
            raise self._failed(one_line(error)) from error

    def _check(self, values: FloatArray) -> None:
        action = self._spec.action
        if len(values) != action.factors or not np.isfinite(values).all():
            raise self._failed(
                f"the policy returned {values.tolist()[:16]}; it must return {action.factors} finite numbers"
            )
        sizes = np.array(action.discrete_branches, np.float32)
        if len(sizes) and ((values != np.rint(values)) | (values < 0) | (values >= sizes)).any():
            raise self._failed(
                f"the policy returned the choices {values.tolist()[:16]}; they must be whole numbers from 0, "
                f"below {sizes.astype(int).tolist()[:16]}"
            )

    def _failed(self, reason: str) -> ActorError:
        return ActorError(ExitCode.POLICY_FAILED, f"--policy {self._name}: {reason}")


def load_policy(name: str, spec: BehaviorSpec, agents: int) -> LocalPolicy:
    """Loads the policy that `--policy` names.

    Args:
        name: `module:callable` (a class is made once for each environment), or the path of an ONNX file that a run
            exported (`results/<run>/<behavior>.onnx`).
        spec: Observations and actions.
        agents: Number of environments.

    Raises:
        ActorError: The policy does not exist, or does not fit the spec.
    """
    if name.endswith(".onnx"):
        return ModelPolicy(Path(name), spec, agents)
    module, colon, attribute = name.partition(":")
    if not module or not colon or not attribute:
        raise ActorError(
            ExitCode.USAGE,
            f"--policy {name}: write module:callable, or the path of an exported model (FILE.onnx)",
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
