"""What environments declare or do by other conventions than Gymnasium's: refused, or warned about once.

Data that differ from what the user thinks train silently and badly. What is converted is in `actor_client.envs.spaces`; README.md
beside this file has the table.
"""

import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import structlog
from rollcast.specs import mismatches

from actor_client.envs.base import EnvBatch
from actor_client.envs.errors import UnknownEnvironment, UnsupportedSpace
from actor_client.envs.infos import MASK_NAMES, warn_of_mask
from actor_client.envs.scalar import ScalarBatch

_MASK_METHODS: Final = ("action_masks", "valid_action_mask", "get_action_mask", "get_avail_actions")
_STATISTICS: Final = {
    "obs_rms": "leave it out, and set network_settings: {normalize: true}: the policy then has the statistics of all actors",
    "return_rms": "leave it out, and scale rewards by reward_signals: {extrinsic: {strength: ...}}",
    "ret_rms": "leave it out, and scale rewards by reward_signals: {extrinsic: {strength: ...}}",
}
"""Attributes with the statistics of wrappers of Gymnasium, Gym and SB3, and what to do instead."""
_EXACT: Final = 2**24
"""The largest range of whole numbers that float32 holds exactly."""
_SEED: Final = "seed"

_log = structlog.get_logger(__name__)


def check_made(env: str, made: Any) -> None:
    """Refuses objects of other interfaces by the way that helps.

    Args:
        env: The user's text.
        made: One environment, with the methods of one.

    Raises:
        UnknownEnvironment: It is for several agents, of the package gym, or its `reset` takes no seed.
    """
    spaces = {
        name: getattr(made, f"single_{name}_space", None) or getattr(made, f"{name}_space", None)
        for name in ("observation", "action")
    }
    if _has_agents(made, spaces["action"]):
        raise UnknownEnvironment(
            f"{env} returned {type(made).__name__}, which has several agents; give it the interface of PettingZoo's "
            f"ParallelEnv, and use rollcast act pettingzoo --env {env}"
        )
    for name, space in spaces.items():
        if space is None:
            raise UnknownEnvironment(
                f"{env}: its {name} space is not known when it is made; set observation_space and action_space in __init__"
            )
        if type(space).__module__.partition(".")[0] == "gym":
            raise UnknownEnvironment(
                f"{env}: its {name} space is of the package gym, which is no longer maintained: write `import gymnasium as gym` "
                "in place of `import gym` where the environment is defined"
            )
    if not _takes_seed(made):
        raise UnknownEnvironment(
            f"{env}: its reset() takes no seed; write def reset(self, *, seed=None, options=None), call "
            "super().reset(seed=seed), and return the observation and an info"
        )


def check_copies(env: str, environments: Sequence[Any], behavior: str) -> None:
    """Refuses copies that are one object, or whose spaces mean other data than those of the first.

    Raises:
        UnknownEnvironment: Two copies are the same object.
        UnsupportedSpace: A copy has other spaces than the first.
    """
    seen: dict[int, int] = {}
    for index, environment in enumerate(environments):
        inner = id(getattr(environment, "unwrapped", environment))
        if (first := seen.setdefault(inner, index)) != index:
            raise UnknownEnvironment(
                f"{env} returned the same object for environments {first} and {index}, whose episodes would mix: return a new "
                "one at each call, or use --num-envs 1"
            )
    first = environments[0]
    for index, environment in enumerate(environments[1:], 1):
        if differences := _differences(behavior, first, environment):
            raise UnsupportedSpace(
                f"environment {index} has other spaces than environment 0: {'; '.join(differences)}; give all copies the same, "
                "which do not depend on chance or on the number of copies"
            )


def warn(
    env: str,
    environments: Sequence[Any],
    batch: EnvBatch,
    kwargs: Mapping[str, Any],
    made_by: Callable[..., Any] | None,
) -> None:
    """Warns once of each convention that the rollout ignores.

    Args:
        env: The user's text.
        environments: The environments; one vector environment with all copies.
        batch: Their batch.
        kwargs: Arguments of the environments.
        made_by: The user's callable; None for an id.
    """
    first = environments[0]
    for wrapper in _chain(first):
        for attribute, instead in _STATISTICS.items():
            if attribute in getattr(wrapper, "__dict__", {}):
                _log.warning(
                    "wrapper_keeps_statistics",
                    wrapper=type(wrapper).__name__,
                    consequence="each actor and each copy has its own, an evaluation begins without, and the policy sees other numbers there",
                    action=instead,
                )
    size = batch.spec.action.mask_size
    _warn_of_precision(first)
    if size:
        _warn_of_masks(first, size)
    copies = batch.num_envs
    if copies > 1 and kwargs.get(_SEED) is not None:
        _log.warning(
            "copies_share_a_seed",
            consequence=f"--env-kwargs gives all {copies} environments the seed {kwargs[_SEED]!r}",
            action=f"leave {_SEED} out, and draw from self.np_random, which reset(seed=...) seeds for each copy",
        )
    elif made_by is not None and _SEED in _parameters(made_by) and kwargs.get(_SEED) is None:
        _log.warning(
            "constructor_seed_not_given",
            consequence=f"{env} takes a seed when it is made, and Rollcast gives seeds to reset() only",
            action="draw from self.np_random, which reset(seed=...) seeds, or the environment's chance does not repeat",
        )


def _warn_of_masks(environment: Any, size: int) -> None:
    for name, part in _parts(environment):
        if str(name) in MASK_NAMES and math.prod(getattr(part, "shape", None) or ()) == size:
            warn_of_mask(f"the part {name!r} of the observation, which the policy sees like any other")
    for name in _MASK_METHODS:
        if any(callable(getattr(each, name, None)) for each in _chain(environment)):
            warn_of_mask(f"the method {name}()")


def _warn_of_precision(environment: Any) -> None:
    for name, part in _parts(environment):
        high = getattr(part, "high", None)
        if high is None or np.dtype(part.dtype).kind not in "iu":
            continue
        if max(abs(float(np.max(high))), abs(float(np.min(part.low)))) > _EXACT:
            _log.warning(
                "observation_loses_precision",
                part=name or "observation",
                consequence=f"whole numbers beyond {_EXACT} are rounded to float32",
                action="give numbers that stand for names as Discrete or MultiDiscrete, and scale the others",
            )


def _parts(environment: Any) -> list[tuple[Any, Any]]:
    """Returns the parts of the observations of one environment by their names; without parts all of it, as ""."""
    space = getattr(environment, "single_observation_space", None) or environment.observation_space
    parts = getattr(space, "spaces", None) if hasattr(space, "keys") else None
    return list((parts or {"": space}).items())


def _has_agents(made: Any, actions: Any) -> bool:
    names = ("possible_agents", "_agent_ids", "get_agent_ids", "n_agents", "num_agents")
    is_of_agents = isinstance(actions, list | tuple | dict) or type(actions).__name__ in {
        "Dict",
        "Tuple",
        "MultiAgentActionSpace",
    }
    return is_of_agents and any(hasattr(each, name) for each in _chain(made) for name in names)


def _takes_seed(made: Any) -> bool:
    reset = getattr(made, "unwrapped", made).reset
    parameters = _parameters(reset)
    kinds = {each.kind for each in parameters.values()}
    is_known = bool(parameters) or inspect.isfunction(getattr(reset, "__func__", reset))  # else of an extension
    return not is_known or _SEED in parameters or inspect.Parameter.VAR_KEYWORD in kinds


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):  # of an extension
        return {}


def _differences(behavior: str, first: Any, second: Any) -> list[str]:
    """Returns how the data of two environments differ; bounds of observations that change nothing may differ."""
    if first.observation_space == second.observation_space and first.action_space == second.action_space:
        return []
    made = [ScalarBatch([each], behavior) for each in (first, second)]
    found = [
        line.replace(": run ", ": ").replace(", actor ", " and ") for line in mismatches(made[0].spec, made[1].spec)
    ]
    pairs = zip(*(each.conversions for each in made), strict=True)
    return found or [
        f"{what}: {one!r} and {other!r}" for (what, one), (_, other) in pairs if not np.array_equal(one, other)
    ]


def _chain(environment: Any) -> Iterator[Any]:
    """Yields an environment and what it wraps, from the outside."""
    seen: set[int] = set()
    while environment is not None and id(environment) not in seen:
        seen.add(id(environment))
        yield environment
        environment = getattr(environment, "__dict__", {}).get("env") or getattr(environment, "__dict__", {}).get(
            "_environment"
        )
