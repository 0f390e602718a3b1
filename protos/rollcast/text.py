"""Makes untrusted text safe for a terminal, and short."""

from __future__ import annotations

MAX_TEXT_CHARS = 300
"""Longer untrusted text is truncated: names and errors are shown on one line."""
MAX_ERROR_CHARS = 2000
"""Longest message of an error that ends a command; it may hold a list that another machine sent."""


def printable(text: str, limit: int = MAX_TEXT_CHARS) -> str:
    """Returns text with control characters and unusual marks escaped, so that a terminal obeys none.

    Names of actors, keys of statistics and error messages come from other machines; an escape sequence in one must not
    move the cursor or forge a line.
    """
    cut = text if len(text) <= limit else text[: limit - 1] + "…"
    if cut.isprintable():
        return cut
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in cut)
