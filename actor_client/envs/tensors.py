"""Reads tensors of GPU simulators as numpy arrays, and converts actions to such tensors, without importing torch."""

import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_array(value: Any) -> NDArray[Any]:
    """Returns a tensor of any device, or anything else that numpy reads, as an array; both may share memory.

    A tensor on a GPU refuses `__array__`, so its `cpu` copies it first.

    Args:
        value: An array, a tensor, or a list of numbers.
    """
    if isinstance(value, np.ndarray):
        return value
    for method in ("detach", "cpu"):
        if callable(convert := getattr(value, method, None)):
            value = convert()
    return np.asarray(value)


def read_rewards(values: Any, num_envs: int) -> NDArray[np.float32]:
    """Returns the rewards of E environments, float32 [E].

    Args:
        values: A number for each environment; also arrays of one number, or a tensor.
        num_envs: E.

    Raises:
        ValueError: A reward is not one number.
    """
    try:
        found = np.array(values if isinstance(values, list) else as_array(values))
    except ValueError:  # of several lengths
        found = np.empty(0)
    if found.dtype.kind not in "fiub" or found.size != num_envs:
        first = next(
            (each for each in values if np.size(each) != 1 or np.asarray(each).dtype.kind not in "fiub"), values
        )
        raise ValueError(f"the reward must be one number; got {_shown_reward(first)}")
    return found.astype(np.float32).reshape(num_envs)


def _shown_reward(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"a dictionary of {', '.join(map(str, value))}; if these are agents, use rollcast act pettingzoo"
    if isinstance(value, str | bytes) or value is None:
        return f"{value!r}; return a float"
    return (
        f"{type(value).__name__} of shape {list(np.shape(value))}; add its parts up, as by --wrap with a function that returns "
        "gymnasium.wrappers.TransformReward(env, sum)"
    )


def is_tensor(value: Any) -> bool:
    """Returns whether a value is an array of a library other than numpy."""
    return hasattr(value, "__array__") and not isinstance(value, np.ndarray | np.generic)


def read_tensors(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns infos of a vector environment with arrays in place of tensors, also in nested dictionaries."""
    return {key: _read(value) for key, value in values.items()}


def _read(value: Any) -> Any:
    if isinstance(value, Mapping):
        return read_tensors(value)
    return as_array(value) if is_tensor(value) else value


def actions_like(observation: Any) -> Callable[[NDArray[Any]], Any]:
    """Returns a converter from actions to the kind of an observation: a torch tensor on its device, or a numpy array.

    Args:
        observation: One leaf of an observation; None before the first.
    """
    # The module that the environment itself has imported, because the actor does not need torch.
    as_tensor = getattr(sys.modules.get(type(observation).__module__.partition(".")[0]), "as_tensor", None)
    device = getattr(observation, "device", None)
    if as_tensor is None or device is None:
        return _unchanged
    return lambda actions: as_tensor(actions, device=device)


def _unchanged(actions: NDArray[Any]) -> NDArray[Any]:
    return actions
