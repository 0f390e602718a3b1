"""Reads the text, run files and commands of CONTRIBUTING.md about plug-ins."""

from __future__ import annotations

from tests.documents import blocks, commands, text_of

FIRST_PAGE = text_of("CONTRIBUTING.md").partition("\n## Working on")[0]
"""All of it before the rules of Rollcast's own code."""


def run_file(trainer: str) -> str:
    """Returns the text of its run file for a trainer."""
    (text,) = (block for block in blocks(FIRST_PAGE, "yaml") if f"trainer_type: {trainer}\n" in block)
    return text


def arguments_of(command: str) -> list[str]:
    """Returns what it writes behind a command, such as ``rollcast act gym``."""
    start = command.split()
    (words,) = (words for words in commands(FIRST_PAGE) if words[: len(start)] == start)
    return words[len(start) :]
