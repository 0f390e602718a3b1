"""Checks wheels against hashes.txt, which has the SHA-256 of every file of every pinned package.

    python deploy/hashes.py check FOLDER      the wheels of a folder, before they are installed
    python deploy/hashes.py update            rewrites hashes.txt from constraints.txt; needs `uv` and a network

torch is left out: its builds for CPU and CUDA come from different indexes, and a machine may have one of its own. Everything
else that constraints.txt pins must be a file with a known hash. Packages that are not pinned (PACKAGES of an image) are named.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

HASHES: Final = Path(__file__).resolve().with_name("hashes.txt")
CONSTRAINTS: Final = HASHES.parent.parent / "constraints.txt"
UNHASHED: Final = frozenset({"torch"})
HEADER: Final = (
    "# The SHA-256 of every file of the packages in constraints.txt, except torch. Written by deploy/hashes.py.\n"
)
_PIN: Final = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)")
_HASH: Final = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_CHUNK_BYTES: Final = 1 << 20


def canonical(name: str) -> str:
    """Returns the name of a package in the form in which names are compared."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(lines: Iterable[str]) -> dict[str, str]:
    """Returns the version of each package that is pinned in lines ``NAME==VERSION``."""
    found = (_PIN.match(line) for line in lines)
    return {canonical(pin[1]): pin[2] for pin in found if pin is not None}


def known(text: str) -> dict[str, set[str]]:
    """Returns the hashes of the files of each package in the text of hashes.txt."""
    hashes: dict[str, set[str]] = {}
    name = ""
    for line in text.splitlines():
        pin = _PIN.match(line)
        if pin is not None:
            name = canonical(pin[1])
        for digest in _HASH.findall(line):
            hashes.setdefault(name, set()).add(digest)
    return hashes


def faults(wheels: Iterable[Path], hashes: Mapping[str, set[str]]) -> tuple[list[str], list[str]]:
    """Returns the wheels that are not those of the index, and the names of packages without a hash."""
    wrong, unhashed = [], []
    for wheel in sorted(wheels):
        name = canonical(wheel.name.partition("-")[0])
        if name not in hashes:
            unhashed.append(wheel.name)
        elif digest(wheel) not in hashes[name]:
            wrong.append(wheel.name)
    return wrong, unhashed


def digest(path: Path) -> str:
    """Returns the SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as stream:
        while part := stream.read(_CHUNK_BYTES):
            found.update(part)
    return found.hexdigest()


def check(folder: Path) -> int:
    """Checks the wheels of a folder; returns 1 if one has a hash that hashes.txt does not know."""
    text = HASHES.read_text(encoding="utf-8")
    wrong, unhashed = faults(folder.glob("*.whl"), known(text))
    if unhashed:
        sys.stderr.write(f"without a hash, as hashes.txt does not list them: {', '.join(unhashed)}\n")
    if wrong:
        sys.stderr.write(
            f"{', '.join(wrong)}: the SHA-256 is not in hashes.txt. The file was built on this machine, comes from an index that "
            "rebuilds packages, has another version than constraints.txt, or was tampered with: delete it and fetch it again\n"
        )
    return 1 if wrong else 0


def update() -> int:
    """Writes hashes.txt from constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines(keepends=True)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pins.txt")
        source.write_text("".join(line for line in lines if not UNHASHED & pins([line]).keys()), encoding="utf-8")
        options = ["--no-deps", "--generate-hashes", "--no-header", "--no-annotate", "--python-version", "3.11"]
        command = ["uv", "pip", "compile", "--quiet", *options, str(source), "--output-file", str(Path(folder, "out"))]
        try:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)  # noqa: S603
        except FileNotFoundError:
            sys.stderr.write("uv is not installed; pip install uv\n")
            return 1
        except subprocess.CalledProcessError as error:
            return error.returncode
        HASHES.write_text(HEADER + Path(folder, "out").read_text(encoding="utf-8"), encoding="utf-8")
    return 0


def main() -> int:
    """Runs the command that the arguments name."""
    match sys.argv[1:]:
        case ["check", folder]:
            return check(Path(folder))
        case ["update"]:
            return update()
    sys.stderr.write("usage: hashes.py check FOLDER | hashes.py update\n")
    return 2


if __name__ == "__main__":
    sys.exit(main())
