"""Prints the requirements of extras of this project, one per line, without the project itself.

    python3 requirements.py pyproject.toml learner

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


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit("usage: requirements.py PYPROJECT.toml EXTRA[,EXTRA...]")
    sys.stdout.write("\n".join(requirements(Path(sys.argv[1]), sys.argv[2].split(","))) + "\n")
