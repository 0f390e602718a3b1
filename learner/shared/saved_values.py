"""Checks single values of a checkpoint as they are read: type, range, finiteness.

A file may be complete and of the right format, and still hold invalid values. The callers turn these errors into one
with the name of the file (`learner.shared.runfolder.runfolder`) or of the behavior (`learner.training.trainers.rl`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from rollcast.limits import MAX_STEPS

MAX_COUNT: Final = MAX_STEPS
"""Limit of counts: no run comes near it, and float64 represents every integer up to it."""
MAX_CLAIMED: Final = 2**100
"""Limit of sums of actors' reported counts, which are not checked: one false report must not make a state invalid."""
_MAX_SHOWN: Final = 60
_MAX_REASON: Final = 1000
"""Most characters of a message: names and numbers from a file may be of any length."""
_SHOWN_TYPES: Final = (type(None), bool, int, float, str, bytes)


def count(state: Mapping[Any, Any], key: str | int, *, most: int = MAX_COUNT) -> int:
    """Returns an integer from 0 to ``most``.

    Raises:
        KeyError: The value is missing.
        ValueError: The value is invalid.
    """
    value = state[key]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} is {shown(value)}, but must be a whole number from 0 to {most}")
    return value


def number(state: Mapping[Any, Any], key: str | int, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Returns a finite number from ``least`` to ``most``.

    Raises:
        KeyError: The value is missing.
        ValueError: The value is invalid.
    """
    value = state[key]
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        raise ValueError(f"{key} is {shown(value)}, but must be a finite number{_bounds(least, most)}")
    return float(value)


def numbers(state: Mapping[Any, Any], key: str | int) -> list[float]:
    """Returns a list of finite numbers.

    Raises:
        KeyError: The value is missing.
        ValueError: The value is invalid.
    """
    values = state[key]
    if not isinstance(values, list | tuple):
        raise ValueError(f"{key} is {shown(values)}, but must be a list of numbers")  # noqa: TRY004 - a fault of the file
    return [number({key: value}, key) for value in values]


def text(state: Mapping[Any, Any], key: str | int) -> str:
    """Returns a text.

    Raises:
        KeyError: The value is missing.
        ValueError: The value is invalid.
    """
    value = state[key]
    if type(value) is not str:
        raise ValueError(f"{key} is {shown(value)}, but must be text")
    return value


def flag(state: Mapping[Any, Any], key: str | int) -> bool:
    """Returns a boolean.

    Raises:
        KeyError: The value is missing.
        ValueError: The value is invalid.
    """
    value = state[key]
    if type(value) is not bool:
        raise ValueError(f"{key} is {shown(value)}, but must be true or false")
    return value


def shown(value: object) -> str:
    """Returns a value's text for a message: the value itself if it is short and plain, otherwise its type."""
    if type(value) not in _SHOWN_TYPES:
        return f"a {type(value).__name__}"
    if type(value) is int and value.bit_length() > _MAX_SHOWN * 3:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.{_MAX_SHOWN}}"


def reason(error: BaseException) -> str:
    """Returns an error of a file in one line: torch's messages have many lines, and a KeyError's is a bare key."""
    told = " ".join(str(error).split())
    if isinstance(error, KeyError):
        told = f"{shown(error.args[0]) if error.args else 'something'} is missing"
    elif not isinstance(error, ValueError) or not told:
        told = f"{type(error).__name__}: {told}"
    return told if len(told) <= _MAX_REASON else f"{told[:_MAX_REASON]}..."


def _bounds(least: float, most: float) -> str:
    lower = f", at least {least:g}" if math.isfinite(least) else ""
    return lower + (f", at most {most:g}" if math.isfinite(most) else "")
