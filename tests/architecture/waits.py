"""Finds in tests what makes them depend on the machine's speed; writes the list of exceptions.

python -m tests.architecture.waits        # lowers the counts of waits.txt to what is found; raises none
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.tree import ROOT, files, parsed, shown

LIST = Path(__file__).with_name("waits.txt")
HEADER = """\
# Files of tests that sleep, look for a free port (bind 0 and ask instead), or pass a time below a second without a fake clock.
# Counts may only fall; `python -m tests.architecture.waits` writes them. Columns: sleeps, ports, constants, file.
"""
KINDS = ("sleeps", "ports", "constants")
UNCHECKED = (ROOT / "tests" / "tools",)
"""Programs, which may wait as they need."""

_PORTS = frozenset({"free_port", "free_ports"})
_TIME = re.compile(r"(?:^|_)(?:seconds|timeout|lease|interval|wait|delay|pause|patience|period)$", re.IGNORECASE)


def found_in(path: Path) -> dict[str, list[int]]:
    """Returns the lines of each kind in a file."""
    tree = parsed(path)
    lines: dict[str, list[int]] = {kind: [] for kind in KINDS}
    nodes = list(ast.walk(tree))
    has_clock = any(isinstance(node, ast.keyword) and node.arg == "clock" for node in nodes)
    for node in nodes:
        for kind, line in _kinds(node):
            if kind != "constants" or not has_clock:
                lines[kind].append(line)
    return {kind: sorted(found) for kind, found in lines.items()}


def all_found() -> dict[str, dict[str, list[int]]]:
    """Returns the lines of each kind in each file that has any."""
    found = {
        shown(path): found_in(path)
        for path in files(ROOT / "tests")
        if path.suffix == ".py" and not any(path.is_relative_to(folder) for folder in UNCHECKED)
    }
    return {name: lines for name, lines in found.items() if any(lines.values())}


def listed() -> dict[str, dict[str, int]]:
    """Returns the counts of the list, by file and kind."""
    rows = (line.split() for line in LIST.read_text().splitlines() if not line.startswith("#"))
    return {row[-1]: dict(zip(KINDS, map(int, row[:-1]), strict=True)) for row in rows}


def _kinds(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Yields what a node is, with the line."""
    if isinstance(node, ast.Attribute) and node.attr == "sleep":
        if isinstance(node.value, ast.Name) and node.value.id == "time":
            yield "sleeps", node.lineno
    elif isinstance(node, ast.ImportFrom) and node.module == "time":
        yield from (("sleeps", node.lineno) for alias in node.names if alias.name == "sleep")
    elif isinstance(node, ast.FunctionDef | ast.Call) and _name(node).lstrip("_") in _PORTS:
        yield "ports", node.lineno
    for name, value in _named(node):
        if _TIME.search(name) and isinstance(value, ast.Constant) and _is_short(value.value):
            yield "constants", value.lineno


def _name(node: ast.FunctionDef | ast.Call) -> str:
    """Returns the name of a function, or that of the function that is called."""
    if isinstance(node, ast.FunctionDef):
        return node.name
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _named(node: ast.AST) -> Iterator[tuple[str, ast.AST | None]]:
    """Yields the names to which a node gives values: arguments, variables, defaults of parameters."""
    if isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node.value
    elif isinstance(node, ast.Assign):
        yield from ((ast.unparse(target), node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign):
        yield ast.unparse(node.target), node.value
    elif isinstance(node, ast.arguments):
        positional = [*node.posonlyargs, *node.args]
        yield from (
            (each.arg, value) for each, value in zip(reversed(positional), reversed(node.defaults), strict=False)
        )
        yield from ((each.arg, value) for each, value in zip(node.kwonlyargs, node.kw_defaults, strict=True))


def _is_short(value: object) -> bool:
    """Returns whether a value is a number between 0 and 1, without these."""
    return isinstance(value, float) and 0 < value < 1


def main() -> int:
    """Lowers the counts of the list; returns 1 if some would have to be raised."""
    known = listed() if LIST.exists() else None
    counts, higher = {}, []
    for name, lines in all_found().items():
        counts[name] = {kind: len(lines[kind]) for kind in KINDS}
        for kind in KINDS if known is not None else ():
            limit = (known or {}).get(name, Counter())[kind]
            if counts[name][kind] > limit:
                higher.append(f"{name}: {kind} in lines {lines[kind]}, and {limit} are listed")
                counts[name][kind] = limit
    rows = [" ".join([*(str(counts[name][kind]) for kind in KINDS), name]) for name in sorted(counts)]
    LIST.write_text(HEADER + "".join(f"{row}\n" for row in rows if not row.startswith("0 0 0 ")))
    sys.stdout.write("".join(f"{line}\n" for line in higher))
    return 1 if higher else 0


if __name__ == "__main__":
    sys.exit(main())
