"""Reads the documents: sections, blocks of code and the commands in them."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
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


def run_page(name: str, folder: Path, last: str = "") -> str:
    """Runs the blocks of Python of a document as one program, and returns what it printed.

    Args:
        name: The document.
        folder: Where it runs; its learners take free ports.
        last: Lines at its end.
    """
    (folder / "page.py").write_text("\n".join([*blocks(text_of(name), "python"), last]))
    done = subprocess.run(
        [sys.executable, "page.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "ROLLCAST_ADDRESS": "127.0.0.1:0", "ROLLCAST_HTTP_ADDRESS": "127.0.0.1:0"},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
