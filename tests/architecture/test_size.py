"""Tests that files and functions stay small, that the house does not grow unseen, and that no concept is cut into slices."""

import ast
import io
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeGuard

from tests.architecture.tree import ROOT, module_name, nodes, python_files, shown, sources, text_in

MAX_FILE_LINES: Final = 800
MAX_FUNCTION_LINES: Final = 60
SLICE_LINES: Final = 120
APART: Final = {
    "actor_client.clients.grpc_door": "a transport, beside that of the web",
    "actor_client.clients.metrics": "loaded only by an actor that serves metrics",
    "actor_client.clients.window": "when to act, which is tested with times of its own",
    "actor_client.unity.metrics": "loaded only by an actor that serves metrics",
    "learner.cli.compare": "a command",
    "learner.cli.runs": "two commands",
    "learner.cli.sharing": "two commands",
    "learner.service.calls.strangers": "sockets of the process, of which gRPC tells nothing",
    "learner.service.run.update_watch": "reasons for a run without updates, of which the front needs one call",
    "rollcast.completion": "loaded only to print completions, which takes as long as all of --help",
    "rollcast.kif": "a format, with the lint rules of its script",
}
"""Short modules with one importer beside them that stay on their own, with the reason."""
NO_CODE: Final = frozenset(
    [
        tokenize.COMMENT,
        tokenize.NL,
        tokenize.NEWLINE,
        tokenize.INDENT,
        tokenize.DEDENT,
        tokenize.ENDMARKER,
    ]
)


def test_no_file_is_long() -> None:
    """No Python file has more than 800 lines."""
    lengths = {shown(path): _file_lines(path) for path in python_files()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_no_function_is_long() -> None:
    """No function has more than 60 lines without its docstring."""
    long = {}
    for path in sources():
        for node in nodes(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = _lines(node)
                if lines > MAX_FUNCTION_LINES:
                    long[f"{shown(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def test_no_concept_is_cut_into_slices() -> None:
    """No module under 120 lines has a module beside it as its only importer: it is a part of that one."""
    paths = {module_name(path): path for path in sources()}
    importers: dict[str, set[str]] = {name: set() for name in paths}
    for name, path in paths.items():
        for imported in _imported(path):
            if imported in paths and imported != name:
                importers[imported].add(name)
    slices = {
        name
        for name, path in paths.items()
        if path.name != "__init__.py"
        and _file_lines(path) < SLICE_LINES
        and len(importers[name]) == 1
        and paths[min(importers[name])].parent == path.parent
    }
    assert sorted(slices - APART.keys()) == [], "fold them into their importers"
    assert sorted(APART.keys() - slices) == [], "no slices any more: take them off the list"


def test_the_product_does_not_grow_unseen() -> None:
    """The packages have no more lines of code than pyproject.toml allows, which names the feature that raised it last."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        most = tomllib.load(file)["tool"]["rollcast"]["most-code-lines"]
    lines = sum(map(code_lines, sources()))
    assert lines <= most, "remove as much elsewhere, or raise most-code-lines and name the feature beside it"


def test_what_counts_as_code(tmp_path: Path) -> None:
    """Docstrings, comments, blank lines and imports are no code; every other line is, those within a text too."""
    path = tmp_path / "module.py"
    path.write_text(
        '"""Doc."""\n\nimport os\n\nX = """a\nb\n"""  # why\n# why\n\ndef f():\n    """Doc."""\n    return os\n'
    )
    assert code_lines(path) == 5


def code_lines(path: Path) -> int:
    """Returns the number of lines with code, without docstrings, comments, blank lines and imports."""
    left_out: set[int] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import | ast.ImportFrom) or _is_text(node):
            left_out.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text_in(path)).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - left_out)


def _is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    """Whether a statement is only a text: the docstring of what it stands in or under."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _imported(path: Path) -> Iterator[str]:
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _file_lines(path: Path) -> int:
    return len(text_in(path).splitlines())


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if _is_text(first):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
