"""Makes batches of the environments that the command line names."""

import importlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from rollcast.enums import ImageLayout, ObservationKind
from rollcast.errors import BadSpec
from rollcast.extras import install
from rollcast.specs import BehaviorSpec, ObservationSpec

from actor_client.envs import conventions
from actor_client.envs.base import EnvBatch, FloatArray, IntArray, Observations, StepResult, WrappedBatch
from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace, one_line
from actor_client.envs.imports import import_callable, import_extra, import_module, refuse_file
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.envs.video import RENDER_MODE
from actor_client.envs.wrappers import Wrapping
from actor_client.exits import ActorError

DEFAULT_BEHAVIOR: Final = "Behavior"
_NOTHING_AROUND: Final = Wrapping()
_FILMED: Final = (
    f"; --video passes render_mode={RENDER_MODE!r}, and the environment needs a render() that returns frames"
)
_VERSION_SUFFIX: Final = re.compile(r"-v\d+$")
_INSTALLED_BY: Final = {
    ("box2d", "swig"): "actor,gym,box2d",
    ("mujoco",): "actor,gym,mujoco",
}
"""Words by which Gymnasium names what is missing, and the extras."""
_INTERFACE: Final = ("gymnasium.Env", ("reset", "step", "observation_space", "action_space"))
_VECTOR_INTERFACE: Final = (
    "gymnasium.vector.VectorEnv",
    ("reset", "step", "num_envs", "single_observation_space", "single_action_space"),
)


def make_env_batch(
    env: str | Callable[..., Any],
    *,
    num_envs: int,
    env_kwargs: Mapping[str, Any] | None = None,
    vector: bool = False,
    behavior: str = DEFAULT_BEHAVIOR,
    wrapping: Wrapping = _NOTHING_AROUND,
    warns: bool = False,
) -> EnvBatch:
    """Makes E environments.

    Args:
        env: A Gymnasium id (`CartPole-v1`, `package:Name-v0`), or `module:callable` or a callable, where
            `callable(**env_kwargs)` returns an object with the interface of `gymnasium.Env`.
        num_envs: E, at least 1.
        env_kwargs: Passed to the environment.
        vector: Use the environment's own vector entry point; a callable gets `num_envs` as well and returns an object
            with the interface of `gymnasium.vector.VectorEnv`.
        behavior: The behavior's name in the spec.
        wrapping: Wrappers of each environment.
        warns: Warn of conventions that are not followed; for the first ones.

    Raises:
        UnknownEnvironment: It does not exist, or cannot be imported or made.
        UnsupportedSpace: A space cannot be sent.
        ActorError: gymnasium is not installed.
    """
    import_extra("gymnasium", "gymnasium", "actor,gym")
    made: Callable[..., Any] | None = None
    if not isinstance(env, str):
        made, env = env, getattr(env, "__qualname__", type(env).__name__)
    elif _names_callable(env):
        made = import_callable(env, *_split(env))
    is_callable = made is not None
    wrapping.check(env, vector=vector, is_callable=is_callable)
    maker = _maker(env, made, num_envs if vector else None, dict(env_kwargs or {}))
    environments: list[Any] = []
    try:
        for index in range(1 if vector else num_envs):
            more = wrapping.arguments(vector=vector, is_callable=is_callable, is_first=index == 0)
            environments.append(maker(more))
            _check_interface(env, environments[-1], vector=vector)
            environments[-1] = wrapping.apply(env, environments[-1], vector=vector, is_first=index == 0)
        batch: EnvBatch = VectorBatch(environments[0], behavior) if vector else ScalarBatch(environments, behavior)
        if wrapping.frame_stack > 1:
            batch = StackedBatch(batch, wrapping.frame_stack)
        check_declaration(batch.spec)
        if not vector:
            conventions.check_copies(env, environments, behavior)
        if warns:
            conventions.warn(env, environments, batch, env_kwargs or {}, made)
    except ActorError:
        _close(environments)
        raise
    except Exception as error:
        _close(environments)
        missing = _missing_part(error)
        needed = _FILMED if isinstance(error, TypeError) and wrapping.video is not None and not environments else ""
        said = f"{env} cannot be created: {one_line(error)}{missing}{needed}"
        raise UnknownEnvironment(said, None if missing else error) from error
    return batch


def behavior_of(env: str) -> str:
    """Returns a behavior's name for an environment: `CartPole` for `CartPole-v1` and `package:CartPole-v1`."""
    return _VERSION_SUFFIX.sub("", env.rpartition(":")[2].rpartition("/")[2]) or DEFAULT_BEHAVIOR


def _split(env: str) -> tuple[str, str]:
    """Returns the module and the name after it; an empty module for a plain id."""
    module, _, name = env.rpartition(":")
    if len(module) == 1 and name.startswith(("\\", "/")):  # a Windows path: the colon follows a drive letter
        return "", env
    return module, name


def _names_callable(env: str) -> bool:
    module, name = _split(env)
    return bool(module) and all(part.isidentifier() for part in name.split("."))


def _maker(
    env: str, made: Callable[..., Any] | None, num_envs: int | None, kwargs: dict[str, Any]
) -> Callable[[Mapping[str, Any]], Any]:
    """Returns a factory of one environment, or of one vector environment of `num_envs` copies."""
    if made is not None:
        copies = {} if num_envs is None else {"num_envs": num_envs}
        return lambda more: made(**copies, **{**kwargs, **more})
    module, name = _split(env)
    if module.endswith(".py"):
        refuse_file(env, Path(module), name)
    if module:
        import_module(env, module)
    return _gymnasium_maker(env, num_envs, kwargs)


def _gymnasium_maker(env: str, num_envs: int | None, kwargs: dict[str, Any]) -> Callable[[Mapping[str, Any]], Any]:
    import gymnasium  # noqa: PLC0415 - environments are made after the command line is read

    try:
        # The part before a colon is a module to import; it was imported before, with a better error message.
        spec = gymnasium.spec(env.rpartition(":")[2])
    except gymnasium.error.Error as error:
        module = env.removesuffix(".py")
        if Path(f"{module}.py").is_file():
            raise UnknownEnvironment(
                f"{env}: no environment is registered under this name; for a class in {module}.py, write {module}:CLASS"
            ) from error
        if _is_board_game(env):
            raise UnknownEnvironment(
                f"{env} is a board game: use rollcast act boards --game {env}, or rollcast evaluate --env {env} --boards"
            ) from error
        raise UnknownEnvironment(
            f"{env}: {one_line(error)} If a package registers it, write package:{env}; for your own code, write "
            "module:callable"
        ) from error
    if num_envs is None:
        # The checker warns of style; the batch checks what matters to Rollcast.
        return lambda more: gymnasium.make(spec, disable_env_checker=True, **{**kwargs, **more})
    if spec.vector_entry_point is None:
        raise UnknownEnvironment(f"{env} has no vector entry point; leave out --vector")
    return lambda more: gymnasium.make_vec(
        spec, num_envs, vectorization_mode="vector_entry_point", **{**kwargs, **more}
    )


def _is_board_game(name: str) -> bool:
    """Returns whether OpenSpiel, if it is installed, has a game of this name."""
    with suppress(ImportError):
        return name.partition("(")[0] in importlib.import_module("pyspiel").registered_names()
    return False


def _missing_part(error: Exception) -> str:
    """Returns how to install the missing dependency of a Gymnasium environment; empty if nothing is missing."""
    text = str(error).lower()
    if type(error).__name__ == "DependencyNotInstalled":
        for names, extras in _INSTALLED_BY.items():
            if any(name in text for name in names):
                return f"; {install(extras)}"
    return ""


def _check_interface(env: str, made: Any, *, vector: bool) -> None:
    """Checks that the object has the methods of an environment."""
    _refuse_pettingzoo(env, made)
    interface, names = _VECTOR_INTERFACE if vector else _INTERFACE
    missing = [name for name in names if not hasattr(made, name)]
    if missing:
        returned = "None" if made is None else f"{type(made).__name__}, which has no {', '.join(missing)}"
        raise UnknownEnvironment(f"{env} returned {returned}; an object with the interface of {interface} is needed")
    conventions.check_made(env, made)


def _refuse_pettingzoo(env: str, made: Any) -> None:
    """Refuses environments of several agents: their methods have gymnasium's names but other arguments."""
    if not (hasattr(made, "possible_agents") and callable(getattr(made, "observation_space", None))):
        return
    interface = "AEC" if hasattr(made, "agent_iter") else "Parallel"
    raise UnknownEnvironment(
        f"{env} returned {type(made).__name__}, a PettingZoo environment ({interface} interface); use "
        f"rollcast act pettingzoo --env {env}"
    )


def check_declaration(spec: BehaviorSpec) -> None:
    """Checks everything that a learner would refuse, before there is a connection.

    Raises:
        UnsupportedSpace: It would refuse the spec.
    """
    try:
        BehaviorSpec.from_message(spec.to_message())
    except BadSpec as error:
        raise UnsupportedSpace(f"the environment cannot be declared: {error}") from error


def _close(environments: list[Any]) -> None:
    for environment in environments:
        try:
            environment.close()
        except Exception:  # noqa: BLE001, S112 - the first fault is the one to show
            continue


class StackedBatch(WrappedBatch):
    """Shows the newest N observations of each environment as one, the oldest first.

    Images are stacked in their channels, vectors and categories are concatenated. An episode begins with N copies of
    its first observation. Stacking follows the conversion to arrays, so it is the same for all environments.

    Args:
        batch: The environments.
        count: N, at least 2.

    Raises:
        UnsupportedSpace: An observation is a list of entities.
    """

    def __init__(self, batch: EnvBatch, count: int) -> None:
        super().__init__(batch)
        self._count = count
        self._axes = [_axis(spec) for spec in batch.spec.observations]
        stacked = tuple(
            _stacked(spec, axis, count) for spec, axis in zip(batch.spec.observations, self._axes, strict=True)
        )
        self.spec = replace(batch.spec, observations=stacked)
        self._shown: Observations = []

    def reset(self, seeds: Sequence[int]) -> Observations:
        """Begins new episodes in all environments; see `EnvBatch.reset`."""
        self._shown = self._filled(self._batch.reset(seeds))
        return self._shown

    def step(self, continuous: FloatArray | None, discrete: IntArray | None) -> StepResult:
        """Takes one action in each environment; see `EnvBatch.step`."""
        result = self._batch.step(continuous, discrete)
        finals = result.final_observations
        if finals is not None:
            finals = self._pushed([shown[result.ended] for shown in self._shown], finals)
        shown = self._pushed(self._shown, result.observations)
        begun = np.zeros(self.num_envs, np.bool_) if result.ignored is None else result.ignored.copy()
        begun[result.ended] = True
        if begun.any():
            firsts = self._filled([values[begun] for values in result.observations])
            for values, first in zip(shown, firsts, strict=True):
                values[begun] = first
        self._shown = shown
        return result._replace(observations=shown, final_observations=finals)

    def _filled(self, observations: Observations) -> Observations:
        return [
            np.concatenate([values] * self._count, axis=axis)
            for values, axis in zip(observations, self._axes, strict=True)
        ]

    def _pushed(self, shown: Observations, newest: Observations) -> Observations:
        """Returns stacks without their oldest and with a newer observation, [B, ...] each."""
        return [
            np.concatenate([_without_oldest(old, values.shape[axis], axis), values], axis=axis)
            for old, values, axis in zip(shown, newest, self._axes, strict=True)
        ]


def _axis(spec: ObservationSpec) -> int:
    """Returns the axis of a batch along which observations are stacked.

    Raises:
        UnsupportedSpace: The observation cannot be stacked.
    """
    if spec.kind is ObservationKind.ENTITIES:
        raise UnsupportedSpace(
            f"observation {spec.name} is a list of entities, which --frame-stack cannot stack; leave out --frame-stack and "
            "give the policy a memory (network_settings: memory)"
        )
    is_last = spec.kind is ObservationKind.IMAGE and spec.layout is ImageLayout.HWC
    return len(spec.shape) if is_last else 1


def _stacked(spec: ObservationSpec, axis: int, count: int) -> ObservationSpec:
    shape = list(spec.shape)
    shape[axis - 1] *= count
    return replace(spec, shape=tuple(shape), categories=spec.categories * count)


def _without_oldest(stack: NDArray[np.generic], size: int, axis: int) -> NDArray[np.generic]:
    return stack[(slice(None),) * axis + (slice(size, None),)]
