"""Makes numbers and tables readable."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """Returns ``h:mm:ss``, or ``-`` if unknown."""
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
    """Returns a number with a readable number of digits, or ``-`` for none."""
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


def figure(value: float) -> str:
    """Returns a count with all its digits, and any other number as `number` does."""
    return f"{value:,}" if isinstance(value, int) else number(value)


def speed(per_second: float) -> str:
    """Returns a rate without flickering digits: one decimal below ten, none above."""
    if not math.isfinite(per_second):
        return "-"
    return f"{per_second:.1f}" if 0 < per_second < 10 else f"{per_second:,.0f}"


def aligned(rows: Sequence[Sequence[str]], left: Collection[str]) -> list[str]:
    """Returns the lines of a table.

    Args:
        rows: Its cells, the first row with the headings.
        left: Headings of the columns that are aligned to the left.
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if heading in left else cell.rjust(width)
            for heading, cell, width in zip(rows[0], row, widths, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines
