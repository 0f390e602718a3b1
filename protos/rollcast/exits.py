"""The base of the exit codes of all commands, and of the errors with which they end."""

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


class RollcastError(Exception):
    """Raised for an error that the user can correct: its message is the line that a command prints before it ends.

    Attributes:
        message: One line that states the value, the limit and the next step.
        exit_code: The exit code of the command.
    """

    message: str
    exit_code: CodeWithHelp
