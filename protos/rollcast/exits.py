"""The base of the exit codes of all commands."""

from __future__ import annotations

import enum
from typing import Self


class CodeWithHelp(enum.IntEnum):
    """Exit codes of a command; ``help`` describes each in one line."""

    help: str

    def __new__(cls, value: int, help_text: str) -> Self:
        """Creates a member from its number and its help text."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.help = help_text
        return member
