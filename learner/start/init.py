"""Implements ``rollcast init``: writes a commented run file, and the schema with which editors check it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from itertools import takewhile
from pathlib import Path
from typing import Final

from learner.shared.exits import ExitCode, UserError
from learner.shared.files import WriteFailed, write_output
from learner.shared.settings.problems import did_you_mean
from learner.shared.settings.schema import run_file_schema

SCHEMA_FILE: Final = "rollcast.schema.json"
"""Name of the schema in the first line of each run file."""
_EXAMPLES: Final = files("learner") / "run_files"
_SUFFIX: Final = ".yaml"


def examples() -> dict[str, str]:
    """Returns the first sentence of each example, by name."""
    names = sorted(path.name.removesuffix(_SUFFIX) for path in _EXAMPLES.iterdir() if path.name.endswith(_SUFFIX))
    return {name: _first_sentence(_text(name)) for name in names}


def example_texts() -> dict[str, str]:
    """Returns the text of each example, by name."""
    return {name: _text(name) for name in examples()}


def example_path(name: str) -> Path:
    """Returns the file of an example, which is part of this package."""
    return Path(str(_EXAMPLES / f"{name}{_SUFFIX}"))


def schema_text() -> str:
    """Returns the JSON schema of run files as text."""
    return json.dumps(run_file_schema(), indent=2) + "\n"


def write_run_file(name: str, folder: Path) -> Path:
    """Writes an example and the schema of run files into a folder, and returns the path of the run file.

    Raises:
        UserError: No example has this name or a file of this name exists (USAGE), or it cannot be written (NOT_SAVED).
    """
    if name not in (known := examples()):
        listed = f"the examples are {', '.join(known)}{did_you_mean(name, known)}"
        raise UserError(ExitCode.USAGE, f"there is no example {name!r}; {listed}")
    path = folder / f"{name}{_SUFFIX}"
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(_text(name))
    except FileExistsError:
        raise UserError(ExitCode.USAGE, f"{path} exists; move it, or run init in another folder") from None
    except OSError as error:
        raise UserError(ExitCode.NOT_SAVED, f"{path} cannot be written: {error.strerror}") from None
    try:
        write_output(folder / SCHEMA_FILE, schema_text().encode())
    except WriteFailed as error:
        path.unlink(missing_ok=True)  # so that the command can be repeated
        raise UserError(ExitCode.NOT_SAVED, str(error)) from None
    return path


def _first_sentence(text: str) -> str:
    """Returns the first sentence of the comment below the first line."""
    lines = takewhile(str.strip, (line.lstrip("#").strip() for line in text.splitlines()[1:]))
    return re.split(r"(?<=\.)\s", " ".join(lines))[0]


def _text(name: str) -> str:
    return (_EXAMPLES / f"{name}{_SUFFIX}").read_text(encoding="utf-8")
