"""Makes a folder like a Unity build for Linux: `Build.x86_64` and its files.

    python -m tests.tools.players.build FOLDER [--python INTERPRETER] [-- ARGUMENTS ...]

The interpreter needs grpcio, protobuf, numpy and Rollcast's messages, as the image of actors has them.
"""

from __future__ import annotations

import argparse
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

SCRIPT = """\
#!/bin/sh
here="$(cd "$(dirname "$0")" && pwd)"
PYTHONPATH="$here/{name}_Data${{PYTHONPATH:+:$PYTHONPATH}}" exec {python} -m tests.tools.players {arguments} "$@"
"""


def make_build(folder: Path, *arguments: str, python: str = sys.executable, name: str = "Build") -> Path:
    """Makes a build and returns its path without `.x86_64`, as people write it after `--env`.

    Args:
        folder: Gets the build; is made.
        arguments: Given to the player before those of the trainer's side.
        python: The interpreter, a path or a name on the PATH.
        name: Of the build.

    Raises:
        FileExistsError: The folder has a build of this name.
    """
    package = folder / f"{name}_Data" / "tests" / "tools" / "players"
    shutil.copytree(Path(__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    executable = folder / f"{name}.x86_64"
    quoted = " ".join(shlex.quote(argument) for argument in arguments)
    executable.write_text(SCRIPT.format(name=name, python=shlex.quote(python), arguments=quoted))
    executable.chmod(0o755)
    return folder / name


def main(argv: Sequence[str] | None = None) -> int:
    """Makes a build and prints its path."""
    parser = argparse.ArgumentParser(prog="python -m tests.tools.players.build", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=sys.executable, help="the interpreter that it starts")
    parser.add_argument("--name", default="Build")
    parser.add_argument("arguments", nargs="*", help="of the player, after --")
    options = parser.parse_args(argv)
    try:
        made = make_build(options.folder, *options.arguments, python=options.python, name=options.name)
    except FileExistsError:
        text = f"{options.folder} already has a build {options.name}: choose another folder or another --name\n"
        parser.exit(2, f"error: {text}")
    sys.stdout.write(f"{made}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
