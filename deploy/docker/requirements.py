"""Prints the requirements of extras of this project, one per line, without the project itself.

    python3 requirements.py pyproject.toml learner
    python3 requirements.py pyproject.toml              what building the project needs

An image installs these before it copies the code, so that a change of the code does not reinstall everything.
"""

import sys
import tomllib
from pathlib import Path


def requirements(pyproject: Path, extras: list[str]) -> list[str]:
    """Returns the requirements of the project and of some of its extras, each once.

    Raises:
        SystemExit: An extra does not exist.
    """
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    optional = project["optional-dependencies"]
    strangers = [extra for extra in extras if extra not in optional]
    if strangers:
        raise SystemExit(f"unknown extra {', '.join(strangers)}; the extras are {', '.join(sorted(optional))}")
    wanted = [*project["dependencies"], *(line for extra in extras for line in optional[extra])]
    return sorted(set(wanted))


def build_requirements(pyproject: Path) -> list[str]:
    """Returns the requirements of building the project."""
    found: list[str] = tomllib.loads(pyproject.read_text(encoding="utf-8"))["build-system"]["requires"]
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case [pyproject]:
            lines = build_requirements(Path(pyproject))
        case [pyproject, extras]:
            lines = requirements(Path(pyproject), extras.split(","))
        case _:
            raise SystemExit("usage: requirements.py PYPROJECT.toml [EXTRA,...]")
    sys.stdout.write("\n".join(lines) + "\n")
