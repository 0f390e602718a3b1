"""Compares saved parameters, and the observations that they belong to, with those of a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from learner.shared.saved_tensors import require_numbers

CRITIC_ONLY = "critic_only"
"""Key of the sorted names in a trainer's state."""

_MAX_SHOWN = 3
_MAX_SHOWN_CHARACTERS = 200


def require_fit(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Compares names, shapes and types before anything is loaded, and checks that all numbers are finite.

    Raises:
        TypeError: The saved value is not a mapping.
        ValueError: A parameter is missing, unknown, or of another shape (at most three are named), or its numbers are
            of another type or not finite.
    """
    if not isinstance(saved, Mapping):
        raise TypeError(f"the parameters are a {type(saved).__name__}")
    names = (*own, *(name for name in saved if name not in own))
    found = [
        f"{name} {_shape(saved, name)} in the saved state, but {_shape(own, name)} in the network"
        for name in names
        if _shape(saved, name) != _shape(own, name)
    ]
    if found:
        more = f"; and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
        raise ValueError("; ".join(found[:_MAX_SHOWN]) + more)
    for name, value in own.items():
        require_numbers(name, saved[name], value.dtype)


def require_critic_only(state: Mapping[str, Any], own: Iterable[str]) -> None:
    """Compares the observations that a saved trainer's policy did not read with those of the run file.

    Networks of the same shapes may read different observations.

    Args:
        state: Result of a trainer's ``state_dict``.
        own: The names in the run file.

    Raises:
        KeyError: The state has no names.
        ValueError: They differ.
    """
    saved, names = state[CRITIC_ONLY], sorted(set(own))
    if not isinstance(saved, list) or saved != names:
        raise ValueError(
            f"it was trained with network_settings.critic_only {saved!r:.{_MAX_SHOWN_CHARACTERS}}, but the run file has "
            f"{names}"
        )


def _shape(state: Mapping[str, Any], name: str) -> str:
    value = state.get(name)
    return f"has shape {list(value.shape)}" if isinstance(value, Tensor) else "is missing"
