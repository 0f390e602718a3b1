"""Files and functions stay small enough to be read in one go."""

import ast
import statistics

from tests.architecture.tree import parsed, python_files, shown, sources

MAX_FILE_LINES = 600
MAX_FUNCTION_LINES = 60
MAX_MEDIAN_LINES = 150


def test_no_file_is_long() -> None:
    """No Python file has more than 600 lines."""
    lengths = {shown(path): len(path.read_text(encoding="utf-8").splitlines()) for path in python_files()}
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_most_files_are_short() -> None:
    """Half of the modules have at most 150 lines."""
    assert (
        statistics.median(len(path.read_text(encoding="utf-8").splitlines()) for path in sources()) <= MAX_MEDIAN_LINES
    )


def test_no_function_is_long() -> None:
    """No function has more than 60 lines, its docstring not counted."""
    long = {}
    for path in sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = _lines(node)
                if lines > MAX_FUNCTION_LINES:
                    long[f"{shown(path)}:{node.lineno} {node.name}"] = lines
    assert long == {}


def _lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    first = node.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        lines -= (first.end_lineno or first.lineno) - first.lineno + 1
    return lines
