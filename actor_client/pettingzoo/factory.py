"""Makes the PettingZoo environment that a command line names."""

import difflib
import importlib.util
import re
import sys
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from actor_client.envs.errors import UnknownEnvironment, one_line
from actor_client.envs.imports import import_callable, import_extra, import_module
from actor_client.exits import ActorError
from actor_client.pettingzoo.agents import Agents, agents_of

PARTICLES: Final = "mpe2"
"""The package of the particle environments, which PettingZoo's registry does not have."""
_MAKERS: Final = ("parallel_env", "env")
"""Functions of an environment's module; the parallel interface is preferred, because it needs fewer calls."""
_VERSION: Final = re.compile(r"[_-]v(\d+)$")
_NAMES: Final = 3
"""Most names that a message suggests."""


def make_agents(env: str, kwargs: Mapping[str, Any]) -> Agents:
    """Makes an environment.

    Args:
        env: An id of PettingZoo's registry (`classic/connect_four-v3`, `connect_four_v3`) or of the particle
            environments (`simple_spread_v3`); a module with `parallel_env` or `env`; or `module:callable`.
        kwargs: Arguments of the environment.

    Raises:
        UnknownEnvironment: It does not exist, or cannot be imported or made.
        ActorError: PettingZoo is not installed.
    """
    maker = _maker(env)
    try:
        made = maker(**kwargs)
    except ActorError:
        raise
    except Exception as error:
        missing = _missing(error)
        said = f"{env} cannot be created: {one_line(error)}{missing}"
        raise UnknownEnvironment(said, None if missing else error) from error
    agents = agents_of(made)
    if agents is None:
        got = "None" if made is None else type(made).__name__
        other = "; for an environment with one agent, use rollcast act gym" if hasattr(made, "reset") else ""
        raise UnknownEnvironment(
            f"{env} returned {got}; an object with the interface of pettingzoo.ParallelEnv or pettingzoo.AECEnv is "
            f"needed{other}"
        )
    return agents


def _maker(env: str) -> Callable[..., Any]:
    module, _, name = env.rpartition(":")
    if module:
        return import_callable(env, module, name)
    if "/" in env or "." not in env:
        found = _registered(env) or _particle(env)
        if found is not None:
            return found
        if "/" in env or importlib.util.find_spec(env) is None:
            raise UnknownEnvironment(f"{env} is no environment of PettingZoo or {PARTICLES}{_nearest(env)}")
    return _maker_of_module(env, import_module(env, env))


def _maker_of_module(env: str, module: Any) -> Callable[..., Any]:
    for name in _MAKERS:
        maker: Callable[..., Any] | None = getattr(module, name, None)
        if callable(maker):
            return maker
    raise UnknownEnvironment(f"{env}: the module has neither parallel_env nor env; write {env}:CALLABLE")


def _registered(env: str) -> Callable[..., Any] | None:
    """Returns the maker of an environment in PettingZoo's registry; None if it has none of this name."""
    pettingzoo = _pettingzoo()
    wanted = _VERSION.sub(r"-v\1", env)
    for kind, registry in (("parallel", pettingzoo.parallel_registry), ("aec", pettingzoo.aec_registry)):
        for known in registry:
            if wanted in (known, known.rpartition("/")[2]):
                return lambda kind=kind, known=known, **kwargs: pettingzoo.make(kind, known, **kwargs)
    return None


def _particle(env: str) -> Callable[..., Any] | None:
    """Returns the maker of a particle environment; None if there is none of this name, or the package is missing."""
    name = _VERSION.sub(r"_v\1", env.removeprefix(f"{PARTICLES}/"))
    if not name.isidentifier() or importlib.util.find_spec(PARTICLES) is None:
        return None
    module = f"{PARTICLES}.{name}"
    if importlib.util.find_spec(module) is None:
        return None
    return _maker_of_module(env, import_module(env, module))


def _pettingzoo() -> Any:
    return import_extra("pettingzoo", "PettingZoo", "actor,pettingzoo")


def _nearest(env: str) -> str:
    """Returns the nearest ids, or how to name code of one's own."""
    pettingzoo = _pettingzoo()
    ids = sorted({*pettingzoo.parallel_registry, *pettingzoo.aec_registry})
    short = {each.rpartition("/")[2]: each for each in ids}
    near = difflib.get_close_matches(_VERSION.sub(r"-v\1", env.rpartition("/")[2]), short, n=_NAMES)
    if near:
        return f"; did you mean {' or '.join(short[each] for each in near)}?"
    particles = (
        "" if importlib.util.find_spec(PARTICLES) else f"; the particle environments need pip install {PARTICLES}"
    )
    if env in _gymnasium_ids():
        return f"; it is one of Gymnasium, with one agent: use rollcast act gym --env {env}"
    return f"; for your own code, write module:callable{particles}"


def _gymnasium_ids() -> Collection[str]:
    gymnasium = sys.modules.get("gymnasium")  # which PettingZoo loads
    return () if gymnasium is None else gymnasium.registry.keys()


def _missing(error: Exception) -> str:
    """Returns how to install what an environment of PettingZoo needs; empty if nothing is missing."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ModuleNotFoundError):
            return f" (no module {cause.name!r})"
        cause = cause.__cause__
    return ""
