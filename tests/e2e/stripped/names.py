"""Lists the names that Python has here but not on Windows, according to typeshed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Final

MODULES: Final = ("os", "signal", "socket", "asyncio", "time")
"""Modules that exist on Windows with fewer names."""


def missing_names() -> dict[str, list[str]]:
    """Returns the names that these modules have on this system and not on Windows."""
    return {name: sorted(_names(name, "linux") - _names(name, "win32")) for name in MODULES}


def missing_modules() -> list[str]:
    """Returns the modules of the standard library that are empty on Windows and not here."""
    stubs = [path.stem for path in _stdlib().glob("*.pyi")]
    return sorted(name for name in stubs if not _names(name, "win32") and _names(name, "linux"))


def _stdlib() -> Path:
    found = find_spec("mypy")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).with_name("typeshed") / "stdlib"


def _names(module: str, system: str) -> set[str]:
    stub = _stdlib() / f"{module}.pyi"
    if not stub.exists():
        stub = _stdlib() / module / "__init__.pyi"
    names: set[str] = set()
    for statement in _statements(ast.parse(stub.read_text(encoding="utf-8")).body, system):
        match statement:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
            case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.Tuple(elts=public)):
                names.update(
                    each.value for each in public if isinstance(each, ast.Constant) and type(each.value) is str
                )
            case ast.Assign(targets=[ast.Name(id=name)]):
                names.add(name)
            case ast.ImportFrom(names=imported):
                names.update(each.asname for each in imported if each.asname is not None)
    return {name for name in names if not name.startswith("_")}


def _statements(body: list[ast.stmt], system: str) -> Iterator[ast.stmt]:
    """Yields the statements that hold on a system with this version of Python."""
    for statement in body:
        if not isinstance(statement, ast.If):
            yield statement
        elif _holds(statement.test, system):
            yield from _statements(statement.body, system)
        else:
            yield from _statements(statement.orelse, system)


def _holds(test: ast.expr, system: str) -> bool:
    """Evaluates a condition of typeshed about the system and the version."""
    values = {"sys": type("sys", (), {"platform": system, "version_info": sys.version_info}), "TYPE_CHECKING": True}
    return bool(eval(compile(ast.Expression(test), "typeshed", "eval"), values))  # noqa: S307
