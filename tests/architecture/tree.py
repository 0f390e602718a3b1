"""The repository's folders, files and modules for the architecture tests."""

import ast
from collections.abc import Iterator
from functools import cache
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


@cache
def own_files() -> tuple[Path, ...]:
    """Returns every file of the repository that a person wrote: folders, single files, dot-files and `.ci`."""
    found: list[Path] = []
    for path in sorted(ROOT.iterdir()):
        if path.is_file() and path.name != ".git":  # a file in a second work tree of git
            found.append(path)
        elif path.name == ".ci" or (path.name not in IGNORED_FOLDERS and not path.name.startswith(".")):
            found += files(path)
    return tuple(found)


@cache
def sources() -> tuple[Path, ...]:
    """Returns the Python files of the three packages, without generated code."""
    return tuple(path for path in files(*PACKAGES.values()) if _is_written(path))


def python_files() -> list[Path]:
    """Returns every Python file that a person wrote, tests and scripts included."""
    return [path for path in own_files() if _is_written(path)]


def _is_written(path: Path) -> bool:
    return path.suffix == ".py" and not path.name.endswith(GENERATED)


@cache
def text_in(path: Path) -> str:
    """Returns the text of a file."""
    return path.read_text(encoding="utf-8", errors="replace")


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Returns the nodes of a Python file's syntax tree, the module first. Each file is parsed once."""
    return tuple(ast.walk(ast.parse(text_in(path), filename=str(path))))


def parsed(path: Path) -> ast.Module:
    """Returns the syntax tree of a Python file."""
    module = nodes(path)[0]
    assert isinstance(module, ast.Module)
    return module


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
