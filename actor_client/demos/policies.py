"""Policies that act without a learner: a function of the user's, or the model that a run exported."""

import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from rollcast.demonstrations.units import ActionUnits
from rollcast.enums import ObservationKind
from rollcast.limits import MAX_POLICY_BYTES
from rollcast.specs import BehaviorSpec, ObservationSpec

from actor_client.envs.base import FloatArray, IntArray, MaskArray, Observations
from actor_client.envs.errors import one_line
from actor_client.exits import ActorError, ExitCode
from actor_client.policy.actions import unusable


class Chosen(NamedTuple):
    """Actions of E agents.

    Attributes:
        continuous: environment actions, float32 [E, n]; None without axes.
        discrete: choices counted from 0, int32 [E, b]; None without branches.
    """

    continuous: FloatArray | None
    discrete: IntArray | None


class LocalPolicy(Protocol):
    """A policy as the loop without a learner sees it."""

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Returns what E agents do.

        Args:
            observations: one array an observation of the spec, [E, *shape] each.
            masks: uint8 [E, sum of branches], 1 = allowed; None = all are.

        Raises:
            ActorError: it cannot.
        """

    def ended(self, agents: Sequence[int]) -> None:
        """These agents begin a new episode."""


_CONTINUOUS: Final = "deterministic_continuous_actions"
_DISCRETE: Final = "deterministic_discrete_actions"
_MEMORY_IN, _MEMORY_OUT, _MASKS = "recurrent_in", "recurrent_out", "action_masks"


class ModelPolicy:
    """Acts with the modes of the distributions; see `actor_client.demos.policies.LocalPolicy`.

    Args:
        path: the ONNX file.
        spec: what is seen and done.
        agents: how many environments there are.

    Raises:
        ActorError: the file cannot be used, or the environment has axes without bounds, onto which the model's [-1, 1]
            cannot be mapped.
    """

    def __init__(self, path: Path, spec: BehaviorSpec, agents: int) -> None:
        self._path = path
        self._spec = spec
        self._units = ActionUnits(spec.action)
        if not self._units.bounded.all():
            raise self._failed("the environment has axes without bounds, and the model's are in [-1, 1]")
        self._session = self._opened()
        inputs = {port.name: port.shape for port in self._session.get_inputs()}
        self._takes_masks = _MASKS in inputs
        memory = inputs.get(_MEMORY_IN)
        self._memory = None if memory is None else np.zeros((agents, 1, int(memory[-1])), np.float32)
        self._outputs = [_CONTINUOUS] if spec.action.continuous_size else []
        self._outputs += [_DISCRETE] if spec.action.discrete_branches else []
        self._outputs += [_MEMORY_OUT] if memory is not None else []
        missing = set(self._outputs) - {port.name for port in self._session.get_outputs()}
        if missing:
            raise self._failed(
                f"it has no output {', '.join(sorted(missing))}: it is another environment's, or no run's"
            )

    def act(self, observations: Observations, masks: MaskArray | None) -> Chosen:
        """Runs the model once; see `LocalPolicy.act`."""
        agents = len(observations[0])
        feed: dict[str, NDArray[Any]] = {
            f"obs_{place}": _as_unity_sees(values, spec)
            for place, (spec, values) in enumerate(zip(self._spec.observations, observations, strict=True))
        }
        if self._takes_masks:
            size = self._spec.action.mask_size
            feed[_MASKS] = np.ones((agents, size), np.float32) if masks is None else masks.astype(np.float32)
        if self._memory is not None:
            feed[_MEMORY_IN] = self._memory
        try:
            found = dict(zip(self._outputs, self._session.run(self._outputs, feed), strict=True))
        except Exception as error:
            raise self._failed(f"it cannot act on this environment: {one_line(error)}") from error
        self._mend(found, observations, masks)
        if self._memory is not None:
            self._memory = found[_MEMORY_OUT]
        continuous = found.get(_CONTINUOUS)
        discrete = found.get(_DISCRETE)
        return Chosen(
            None if continuous is None else self._units.actions(continuous.astype(np.float32)),
            None if discrete is None else discrete.astype(np.int32),
        )

    def _mend(self, found: dict[str, NDArray[Any]], observations: Observations, masks: MaskArray | None) -> None:
        """Gives zeros to whoever sees NaN and gets it for an answer; anyone else's NaN is the model's fault."""
        for name, values in found.items():
            rows = ~np.isfinite(values).all(axis=tuple(range(1, values.ndim)))
            if not rows.any():
                continue
            if (rows & ~unusable(observations, masks, self._spec.action.discrete_branches)).any():
                raise self._failed(
                    f"its output {name} is not finite on observations that are; export another checkpoint"
                )
            values[rows] = 0

    def ended(self, agents: Sequence[int]) -> None:
        """Forgets what these agents remember."""
        if self._memory is not None:
            self._memory[list(agents)] = 0

    def _opened(self) -> Any:
        # Here, because a scripted policy needs no inference library.
        try:
            from actor_client.policy.graph import open_session  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise ActorError(
                ExitCode.MISSING_EXTRA,
                f"--policy FILE.onnx needs the module {error.name!r}; in the checkout: pip install '.[actor,gym]'",
            ) from None
        try:
            if self._path.stat().st_size > MAX_POLICY_BYTES:
                raise self._failed(f"it has more than {MAX_POLICY_BYTES} bytes")
            return open_session(self._path.read_bytes())
        except OSError as error:
            raise self._failed(f"cannot be opened: {error.strerror or error}") from None
        except ActorError:
            raise
        except Exception as error:
            raise self._failed(f"it is no model that can be run: {one_line(error)}") from error

    def _failed(self, reason: str) -> ActorError:
        return ActorError(ExitCode.POLICY_FAILED, f"--policy {self._path}: {reason}")


def _as_unity_sees(values: NDArray[Any], spec: ObservationSpec) -> NDArray[np.float32]:
    """Returns an observation as the model takes it: floats, and pictures of bytes from 0 to 1."""
    floats = values.astype(np.float32)
    if spec.kind is ObservationKind.IMAGE and spec.dtype.kind in "iu" and spec.scale:
        floats /= np.float32(spec.scale)
    return floats


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
