"""Makes environment batches from what the command line names."""

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

from rollcast.errors import BadSpec
from rollcast.specs import BehaviorSpec

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace, one_line
from actor_client.envs.scalar import ScalarBatch
from actor_client.envs.vector import VectorBatch
from actor_client.exits import ActorError, ExitCode

DEFAULT_BEHAVIOR: Final = "Behavior"
_VERSION_SUFFIX: Final = re.compile(r"-v\d+$")
_INTERFACE: Final = ("gymnasium.Env", ("reset", "step", "observation_space", "action_space"))
_VECTOR_INTERFACE: Final = (
    "gymnasium.vector.VectorEnv",
    ("reset", "step", "num_envs", "single_observation_space", "single_action_space"),
)


def make_env_batch(
    env: str,
    *,
    num_envs: int,
    env_kwargs: Mapping[str, Any] | None = None,
    vector: bool = False,
    behavior: str = DEFAULT_BEHAVIOR,
) -> EnvBatch:
    """Makes E environments.

    Args:
        env: A Gymnasium id (`CartPole-v1`, `package:Name-v0`), or `module:callable` where `callable(**env_kwargs)`
            returns an object with the interface of `gymnasium.Env`.
        num_envs: E, at least 1.
        env_kwargs: Passed to the environment.
        vector: Use the environment's own vector entry point; a callable gets `num_envs` as well and returns an object
            with the interface of `gymnasium.vector.VectorEnv`.
        behavior: The name in the spec.

    Raises:
        UnknownEnvironment: It does not exist, or cannot be imported or made.
        UnsupportedSpace: A space cannot be sent.
        ActorError: gymnasium is not installed.
    """
    if num_envs < 1:
        raise UnknownEnvironment(f"{num_envs} environments; at least 1 is needed")
    _require_gymnasium()
    maker = _maker(env, num_envs if vector else None, dict(env_kwargs or {}))
    environments: list[Any] = []
    try:
        for _ in range(1 if vector else num_envs):
            environments.append(maker())
            _check_interface(env, environments[-1], vector=vector)
        batch = VectorBatch(environments[0], behavior) if vector else ScalarBatch(environments, behavior)
        _check(batch.spec)
    except ActorError:
        _close(environments)
        raise
    except Exception as error:
        _close(environments)
        raise UnknownEnvironment(f"{env} cannot be made: {one_line(error)}{_missing_part(error)}") from error
    return batch


def behavior_of(env: str) -> str:
    """Returns a behavior's name after an environment: `CartPole` for `CartPole-v1` and `package:CartPole-v1`."""
    return _VERSION_SUFFIX.sub("", env.rpartition(":")[2].rpartition("/")[2]) or DEFAULT_BEHAVIOR


def _maker(env: str, num_envs: int | None, kwargs: dict[str, Any]) -> Callable[[], Any]:
    """Returns what makes one environment, or one vector environment of `num_envs` copies."""
    module, colon, name = env.partition(":")
    if colon and module.endswith(".py"):
        _refuse_file(env, Path(module), name)
    if colon and all(part.isidentifier() for part in name.split(".")):
        found = _import_callable(env, module, name)
        return (lambda: found(**kwargs)) if num_envs is None else (lambda: found(num_envs=num_envs, **kwargs))
    if colon:
        _import_module(env, module)
    return _gymnasium_maker(env, num_envs, kwargs)


def _gymnasium_maker(env: str, num_envs: int | None, kwargs: dict[str, Any]) -> Callable[[], Any]:
    import gymnasium  # noqa: PLC0415 - environments are made after the command line is read

    try:
        # The part before a colon is a module to import, which has been done with a better message.
        spec = gymnasium.spec(env.rpartition(":")[2])
    except gymnasium.error.Error as error:
        module = env.removesuffix(".py")
        if Path(f"{module}.py").is_file():
            raise UnknownEnvironment(
                f"{env}: no environment is registered under this name; for one of {module}.py write {module}:CLASS"
            ) from error
        raise UnknownEnvironment(
            f"{env}: {one_line(error)} If a package registers it, write package:{env}; for an object of your own, "
            f"module:callable"
        ) from error
    if num_envs is None:
        # The checker warns of style; what matters to Rollcast is checked by the batch.
        return lambda: gymnasium.make(spec, disable_env_checker=True, **kwargs)
    if spec.vector_entry_point is None:
        raise UnknownEnvironment(f"{env} has no vector entry point of its own; leave out --vector")
    return lambda: gymnasium.make_vec(spec, num_envs, vectorization_mode="vector_entry_point", **kwargs)


def _import_callable(env: str, module: str, name: str) -> Callable[..., Any]:
    found: Any = _import_module(env, module)
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise UnknownEnvironment(f"{env}: module {module} has no {name}")
    if not callable(found):
        raise UnknownEnvironment(
            f"{env}: {name} is {type(found).__name__}; a callable that returns an environment is needed"
        )
    result: Callable[..., Any] = found
    return result


def _import_module(env: str, module: str) -> Any:
    """Imports a module, from the working directory too, as `python -m` would."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        return importlib.import_module(module)
    except Exception as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module.partition(".")[0]
        where = f"; looked in {here} and PYTHONPATH" if absent else ""
        raise UnknownEnvironment(f"{env}: module {module} cannot be imported: {one_line(error)}{where}") from error


def _refuse_file(env: str, file: Path, name: str) -> NoReturn:
    """Says how to write the module of a file."""
    folder = "" if file.parent == Path() else f", with {file.parent} as the working directory or in PYTHONPATH"
    raise UnknownEnvironment(f"{env}: a module is named without .py; write {file.stem}:{name}{folder}")


def _missing_part(error: Exception) -> str:
    """Returns how to install what an environment of Gymnasium's own lacks, or nothing."""
    text = str(error).lower()
    if type(error).__name__ == "DependencyNotInstalled" and ("box2d" in text or "swig" in text):
        return "; in the checkout: pip install '.[actor,gym,box2d]'"
    return ""


def _check_interface(env: str, made: Any, *, vector: bool) -> None:
    """Checks that what was made can be stepped at all."""
    interface, names = _VECTOR_INTERFACE if vector else _INTERFACE
    missing = [name for name in names if not hasattr(made, name)]
    if missing:
        returned = "None" if made is None else f"{type(made).__name__}, which has no {', '.join(missing)}"
        raise UnknownEnvironment(f"{env} returned {returned}; an object with the interface of {interface} is needed")


def _require_gymnasium() -> None:
    try:
        importlib.import_module("gymnasium")
    except ImportError as error:
        raise ActorError(
            ExitCode.MISSING_EXTRA, "gymnasium is not installed; in the checkout: pip install '.[actor,gym]'"
        ) from error


def _check(spec: BehaviorSpec) -> None:
    """Checks what a learner would refuse, before there is a connection."""
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
