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


def in_one_line(error: BaseException) -> str:
    """Returns an error's type and message in one short line; messages of users' code may have many lines, or fail."""
    try:
        said = str(error)
    except BaseException as failure:  # noqa: BLE001 - reporting an error must not fail
        said = f"its message cannot be formatted ({type(failure).__name__})"
    # Protobuf rejects half of a surrogate pair, which file names can contain.
    return printable(" ".join(f"{type(error).__name__}: {said}".split()))
