"""Reads the text, run files and commands of deploy/examples/PLUGINS.md."""

from __future__ import annotations

from tests.documents import blocks, commands, text_of

PAGE = text_of("deploy/examples/PLUGINS.md")


def run_file(trainer: str) -> str:
    """Returns the text of its run file for a trainer."""
    (text,) = (block for block in blocks(PAGE, "yaml") if f"trainer_type: {trainer}\n" in block)
    return text


def arguments_of(command: str) -> list[str]:
    """Returns what it writes behind a command, such as ``rollcast act gym``."""
    start = command.split()
    (words,) = (words for words in commands(PAGE) if words[: len(start)] == start)
    return words[len(start) :]
