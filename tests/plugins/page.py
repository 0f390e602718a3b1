"""What CONTRIBUTING.md tells whoever adds to Rollcast: text, run files and commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

FIRST_PAGE = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Working on")[0]
"""All of it before the rules of Rollcast's own code."""


def run_file(trainer: str) -> str:
    """Returns the text of its run file for a trainer."""
    blocks = re.findall(r"```yaml\n(.*?)```", FIRST_PAGE, flags=re.DOTALL)
    (text,) = (block for block in blocks if f"trainer_type: {trainer}\n" in block)
    return str(text)


def arguments_of(command: str) -> list[str]:
    """Returns what it writes behind a command, such as ``rollcast-actor gym``."""
    (rest,) = re.findall(rf"^{command} (.*)$", FIRST_PAGE, flags=re.MULTILINE)
    return shlex.split(rest)
