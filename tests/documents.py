"""Reads the documents: sections, blocks of code and the commands in them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def text_of(name: str) -> str:
    """Returns a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def headings(name: str) -> list[str]:
    """Returns the headings of the second level."""
    return re.findall(r"^## (.*)$", text_of(name), flags=re.MULTILINE)


def section(name: str, heading: str) -> str:
    """Returns the text below a heading of the second level, up to the next one."""
    (text,) = (part for part in re.split(r"^## ", text_of(name), flags=re.MULTILINE) if part.startswith(f"{heading}\n"))
    return text


def blocks(text: str, language: str) -> list[str]:
    """Returns the blocks of code in a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(text: str) -> list[list[str]]:
    """Returns each command line of the shell blocks as its words, without comments."""
    lines = (line for block in blocks(text, "sh") for line in block.splitlines())
    return [words for words in (shlex.split(line, comments=True) for line in lines) if words]
