"""Single values of a checkpoint, checked as they are taken out: of the right type, in range, finite.

A file may be whole, of the right format, and hold nonsense. Whoever takes over a state turns what is raised here into an
error with the name of the file (`learner.run.checkpointing`) or of the behavior (`learner.trainers.rl`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from rollcast.limits import MAX_STEPS

MAX_COUNT: Final = MAX_STEPS
"""No count of a run comes near, and float64 holds every whole number up to here."""
MAX_CLAIMED: Final = 2**100
"""What actors claim is kept as it is and adds up over all of them: no state may be refused because one of them lied."""
_MAX_SHOWN: Final = 60
_MAX_REASON: Final = 1000
"""Characters: names and numbers of a file go into messages, and a file may have any."""
_SHOWN_TYPES: Final = (type(None), bool, int, float, str, bytes)


def count(state: Mapping[Any, Any], key: str | int, *, most: int = MAX_COUNT) -> int:
    """Returns a whole number from 0 to ``most``.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    value = state[key]
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{key} is {shown(value)}, and must be a whole number from 0 to {most}")
    return value


def number(state: Mapping[Any, Any], key: str | int, *, least: float = -math.inf, most: float = math.inf) -> float:
    """Returns a finite number from ``least`` to ``most``.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    value = state[key]
    if type(value) not in (int, float) or not math.isfinite(value) or not least <= value <= most:
        raise ValueError(f"{key} is {shown(value)}, and must be a finite number{_bounds(least, most)}")
    return float(value)


def numbers(state: Mapping[Any, Any], key: str | int) -> list[float]:
    """Returns a list of finite numbers.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    values = state[key]
    if not isinstance(values, list | tuple):
        raise ValueError(f"{key} is {shown(values)}, and must be a list of numbers")  # noqa: TRY004 - a fault of the file
    return [number({key: value}, key) for value in values]


def text(state: Mapping[Any, Any], key: str | int) -> str:
    """Returns a text.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    value = state[key]
    if type(value) is not str:
        raise ValueError(f"{key} is {shown(value)}, and must be a text")
    return value


def flag(state: Mapping[Any, Any], key: str | int) -> bool:
    """Returns true or false.

    Raises:
        KeyError: it is missing.
        ValueError: it is something else.
    """
    value = state[key]
    if type(value) is not bool:
        raise ValueError(f"{key} is {shown(value)}, and must be true or false")
    return value


def shown(value: object) -> str:
    """Returns what a message says of a value: itself if it is short and plain, else what it is."""
    if type(value) not in _SHOWN_TYPES:
        return f"a {type(value).__name__}"
    if type(value) is int and value.bit_length() > _MAX_SHOWN * 3:
        return f"a number of {value.bit_length()} bits"
    return f"{value!r:.{_MAX_SHOWN}}"


def reason(error: BaseException) -> str:
    """Returns in one line what an error says of a file: torch's own messages have many, a KeyError's is a bare key."""
    told = " ".join(str(error).split())
    if isinstance(error, KeyError):
        told = f"{shown(error.args[0]) if error.args else 'something'} is missing in it"
    elif not isinstance(error, ValueError) or not told:
        told = f"{type(error).__name__}: {told}"
    return told if len(told) <= _MAX_REASON else f"{told[:_MAX_REASON]}..."


def _bounds(least: float, most: float) -> str:
    lower = f", at least {least:g}" if math.isfinite(least) else ""
    return lower + (f", at most {most:g}" if math.isfinite(most) else "")
