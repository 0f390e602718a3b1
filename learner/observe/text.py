"""Text from outside, made fit for a terminal; numbers, made fit for people."""

from __future__ import annotations

import math

MAX_TEXT_CHARS = 300
"""Longer text from outside is cut: names and errors are shown in one line."""

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def printable(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Returns text without anything a terminal would obey: control characters and odd marks are shown as escapes.

    Names of actors, keys of statistics and error messages come from other machines; an escape sequence in one must not
    move the cursor or forge a line.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)


def duration(seconds: float) -> str:
    """Returns ``h:mm:ss``, or ``-`` for what is not known."""
    if not math.isfinite(seconds) or seconds < 0:
        return "-"
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def size(count_bytes: float) -> str:
    """Returns a size with a binary unit, as in ``3.1 MiB``."""
    value = float(count_bytes)
    unit = 0
    while value >= 1024 and unit < len(_BYTE_UNITS) - 1:
        value /= 1024
        unit += 1
    return f"{value:.0f} {_BYTE_UNITS[unit]}" if unit == 0 else f"{value:.1f} {_BYTE_UNITS[unit]}"


def number(value: float | None) -> str:
    """Returns a number with as many digits as people read, or ``-`` for none."""
    if value is None or not math.isfinite(value):
        return "-"
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:,.0f}"
    if magnitude >= 100:
        return f"{value:.1f}"
    if magnitude >= 0.01 or magnitude == 0:
        return f"{value:.2f}"
    return f"{value:.1e}"


def speed(per_second: float) -> str:
    """Returns a rate without digits that flicker: one after the point below ten, none above."""
    if not math.isfinite(per_second):
        return "-"
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"
