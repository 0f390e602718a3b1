"""The repository's folders, files and modules for the architecture tests."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = {
    "rollcast": ROOT / "protos" / "rollcast",
    "learner": ROOT / "learner",
    "actor_client": ROOT / "actor_client",
}
IGNORED_FOLDERS = frozenset({"__pycache__", "results", "build", "dist", "wheels"})
GENERATED = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py", "_pb2_grpc.pyi")


def files(*folders: Path) -> Iterator[Path]:
    """Yields the files below the folders, but not those in caches, dot-folders and results."""
    for folder in folders:
        for path in sorted(folder.iterdir()):
            if path.is_dir():
                if (
                    path.name not in IGNORED_FOLDERS
                    and not path.name.startswith(".")
                    and not path.name.endswith(".egg-info")
                ):
                    yield from files(path)
            elif path.is_file():
                yield path


def own_files() -> Iterator[Path]:
    """Yields every file of the repository that a person wrote: folders, single files, dot-files and `.ci`."""
    for path in sorted(ROOT.iterdir()):
        if path.is_file() and path.name != ".git":  # a file in a second work tree of git
            yield path
        elif path.name == ".ci" or (path.name not in IGNORED_FOLDERS and not path.name.startswith(".")):
            yield from files(path)


def sources() -> Iterator[Path]:
    """Yields the Python files of the three packages, without generated code."""
    for path in files(*PACKAGES.values()):
        if path.suffix == ".py" and not path.name.endswith(GENERATED):
            yield path


def python_files() -> Iterator[Path]:
    """Yields every Python file that a person wrote, tests and scripts included."""
    for path in own_files():
        if path.suffix == ".py" and not path.name.endswith(GENERATED):
            yield path


def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a Python file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def shown(path: Path) -> str:
    """Returns the path as a person writes it."""
    return str(path.relative_to(ROOT))


def module_name(path: Path) -> str:
    """Returns the dotted name of a source file."""
    for package, folder in PACKAGES.items():
        if path.is_relative_to(folder):
            parts = (package, *path.relative_to(folder).with_suffix("").parts)
            return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    raise ValueError(f"{shown(path)} belongs to no package")
