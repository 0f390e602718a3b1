"""What is read from the info dictionaries of environments beside masks: the numbers of an episode."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np
from rollcast import limits

MAX_INFOS: Final = 32
"""More numbers of one episode than this are left out: each becomes a column of a chunk."""


def episode_numbers(info: Mapping[str, Any]) -> dict[str, float]:
    """Returns the scalar numbers of an info dictionary by a name that the wire allows, one nested level included.

    Args:
        info: As an environment returned it with the last step of an episode.
    """
    return dict(_numbers(info, "", nested=True)) if info else {}


def _numbers(info: Mapping[str, Any], prefix: str, *, nested: bool) -> Iterator[tuple[str, float]]:
    found = 0
    for key, value in info.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping) and nested:
            yield from _numbers(value, f"{name}.", nested=False)
        elif is_number(value) and limits.NAME_PATTERN.fullmatch(name) and found < MAX_INFOS:
            found += 1
            yield name, float(value)


def is_number(value: Any) -> bool:
    """Returns whether a value is one real number or truth value, in Python's or numpy's types."""
    if isinstance(value, np.ndarray):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, int | float | np.integer | np.floating | np.bool_)


def vector_episode_numbers(infos: Mapping[str, Any], env: int, num_envs: int) -> dict[str, float]:
    """Returns the numbers of one environment from the infos of a vector environment.

    Each key holds an array with one entry an environment, and `_key` says which entries are set.

    Args:
        infos: Of the whole batch; may hold such dictionaries itself.
        env: Which environment.
        num_envs: How many there are.
    """
    return episode_numbers(_row(infos, env, num_envs, nested=True)) if infos else {}


def _row(infos: Mapping[str, Any], env: int, num_envs: int, *, nested: bool) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, values in infos.items():
        given = infos.get(f"_{key}")
        if key.startswith("_") or (isinstance(given, np.ndarray) and given.shape == (num_envs,) and not given[env]):
            continue
        if isinstance(values, Mapping) and nested:
            row[key] = _row(values, env, num_envs, nested=False)
        elif isinstance(values, np.ndarray) and values.shape == (num_envs,):
            row[key] = values[env]
    return row
