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
