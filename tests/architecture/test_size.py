"""Tests that files and functions stay small."""

import ast
from pathlib import Path

from tests.architecture.tree import nodes, python_files, shown, sources, text_in

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60


def test_no_file_is_long() -> None:
    """No Python file has more than 600 lines."""
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


def _file_lines(path: Path) -> int:
    return len(text_in(path).splitlines())


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
