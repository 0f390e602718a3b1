"""Says how saved parameters differ from a network's own, in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from learner.common.saved_tensors import require_numbers

_MAX_SHOWN = 3


def require_fit(saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Compares names, shapes and types before anything is loaded, and looks whether all numbers are finite.

    Raises:
        TypeError: what was saved is no mapping.
        ValueError: a parameter is missing, unknown, or of another shape; three are named, the rest are counted. Or its
            numbers are of another type, or not finite.
    """
    if not isinstance(saved, Mapping):
        raise TypeError(f"the parameters are a {type(saved).__name__}")
    names = (*own, *(name for name in saved if name not in own))
    found = [
        f"{name} is {_shape(saved, name)} in the saved state and {_shape(own, name)} here"
        for name in names
        if _shape(saved, name) != _shape(own, name)
    ]
    if found:
        more = f", and {len(found) - _MAX_SHOWN} more" if len(found) > _MAX_SHOWN else ""
        raise ValueError(", ".join(found[:_MAX_SHOWN]) + more)
    for name, value in own.items():
        require_numbers(name, saved[name], value.dtype)


def _shape(state: Mapping[str, Any], name: str) -> str:
    value = state.get(name)
    return str(list(value.shape)) if isinstance(value, Tensor) else "missing"
